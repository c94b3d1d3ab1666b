// The largest of an array.
class Max {
    static int of(int[] values) {
        int largest = values[0];
        for (int value : values) {
            if (value > largest) {
                largest = value;
            }
        }
        return largest;
    }
}
