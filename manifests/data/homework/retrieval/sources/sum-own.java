class Gauss {
    static long series(long n) {
        if (n < 1) {
            return 0;
        }
        return n * (n + 1) / 2;
    }
}
