class Tokens {
    static int number(String input) {
        int found = 0;
        boolean open = false;
        for (char letter : input.toCharArray()) {
            if (Character.isWhitespace(letter)) {
                open = false;
            } else if (!open) {
                open = true;
                found++;
            }
        }
        return found;
    }
}
