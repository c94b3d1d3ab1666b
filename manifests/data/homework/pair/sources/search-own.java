import java.util.Arrays;

class Finder {
    static boolean contains(int[] numbers, int wanted) {
        return Arrays.stream(numbers).anyMatch(number -> number == wanted);
    }
}
