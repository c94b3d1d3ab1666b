// Counts the words of a text.
class Words {
    static int count(String text) {
        int words = 0;
        boolean inside = false;
        for (char c : text.toCharArray()) {
            if (Character.isWhitespace(c)) {
                inside = false;
            } else if (!inside) {
                inside = true;
                words++;
            }
        }
        return words;
    }
}
