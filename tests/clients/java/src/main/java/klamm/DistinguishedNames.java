package klamm;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

/** Reads names as DER in hex, a line each, and prints Java's text of each as UTF-8 in hex, or that it was refused. */
public final class DistinguishedNames {
    private DistinguishedNames() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        var printed = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                var name = new X500Principal(HexFormat.of().parseHex(line)).getName();
                printed.append(HexFormat.of().formatHex(name.getBytes(StandardCharsets.UTF_8)));
            } catch (IllegalArgumentException error) {
                printed.append("refused");
            }
            printed.append('\n');
        }
        System.out.print(printed);
    }
}
