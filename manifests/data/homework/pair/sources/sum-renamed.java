class Adder {
    // mine
    static int addAll(int last) {
        int result = 0;
        for (int k = 1; k <= last; k++) {
            result += k;
        }
        return result;
    }
}
