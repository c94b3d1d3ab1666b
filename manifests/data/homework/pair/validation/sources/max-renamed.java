class Top {
    static int pick(int[] list) {
        int top = list[0];
        for (int item : list) {
            if (item > top) {
                top = item;
            }
        }
        return top;
    }
}
