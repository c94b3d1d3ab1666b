import java.util.stream.IntStream;

class Largest {
    static int in(int... input) {
        return IntStream.of(input).max().getAsInt();
    }
}
