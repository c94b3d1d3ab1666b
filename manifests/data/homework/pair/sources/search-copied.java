class Search {
    static int find(int[] sorted, int value) {
        int low = 0, high = sorted.length - 1;
        while (low <= high) {
            int middle = (low + high) / 2;
            if (sorted[middle] == value) {
                return middle;
            } else if (sorted[middle] < value) {
                low = middle + 1;
            } else {
                high = middle - 1;
            }
        }
        return -1;
    }
}
