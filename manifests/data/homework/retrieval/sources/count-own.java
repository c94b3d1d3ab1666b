class Splitter {
    static int words(String line) {
        String trimmed = line.trim();
        return trimmed.isEmpty() ? 0 : trimmed.split("\\s+").length;
    }
}
