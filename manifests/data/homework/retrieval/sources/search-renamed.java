class Lookup {
    static int locate(int[] data, int key) {
        int a = 0;
        int b = data.length - 1;
        while (a <= b) {
            int m = (a + b) / 2;
            if (data[m] == key) {
                return m;
            } else if (data[m] < key) {
                a = m + 1;
            } else {
                b = m - 1;
            }
        }
        return -1;
    }
}
