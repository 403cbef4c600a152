package clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.NameCallback;
import javax.security.auth.callback.PasswordCallback;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.scram.ScramCredentialCallback;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.scram.internals.ScramSaslClient;
import org.apache.kafka.common.security.scram.internals.ScramSaslServer;

/**
 * Kafka's own sides of SCRAM and its reading of JAAS texts, asked on standard input, a line for each question and answer.
 *
 * <p>Words are separated by spaces; all but the first are base64, an empty one "=". An exception is answered "error" and
 * its class's name.
 */
public final class SaslOracle {
    private ScramSaslServer server;
    private ScramSaslClient client;

    private SaslOracle() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        SaslOracle oracle = new SaslOracle();
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String answer;
            try {
                answer = oracle.answer(line.split(" "));
            } catch (Exception problem) {
                answer = "error " + problem.getClass().getSimpleName();
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "server":
                startServer(words);
                return "ok";
            case "server-step":
                byte[] answered = server.evaluateResponse(bytes(words[1]));
                return (server.isComplete() ? "done " : "next ") + base64(answered);
            case "client":
                startClient(text(words[1]), text(words[2]), text(words[3]));
                return "next " + base64(client.evaluateChallenge(new byte[0]));
            case "client-step":
                byte[] sent = client.evaluateChallenge(bytes(words[1]));
                return client.isComplete() ? "done" : "next " + base64(sent);
            case "jaas":
                return jaas(text(words[1]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void startServer(String[] words) throws Exception {
        ScramCredential credential =
                new ScramCredential(
                        bytes(words[3]), bytes(words[4]), bytes(words[5]), Integer.parseInt(text(words[6])));
        String user = text(words[2]);
        server =
                new ScramSaslServer(
                        ScramMechanism.forMechanismName(text(words[1])),
                        Map.of(),
                        callbacks -> {
                            String asked = null;
                            for (Callback callback : callbacks) {
                                if (callback instanceof NameCallback) {
                                    asked = ((NameCallback) callback).getDefaultName();
                                } else if (user.equals(asked)) {
                                    ((ScramCredentialCallback) callback).scramCredential(credential);
                                }
                            }
                        });
    }

    private void startClient(String mechanism, String user, String password) throws Exception {
        client =
                new ScramSaslClient(
                        ScramMechanism.forMechanismName(mechanism),
                        callbacks -> {
                            for (Callback callback : callbacks) {
                                if (callback instanceof NameCallback) {
                                    ((NameCallback) callback).setName(user);
                                } else if (callback instanceof PasswordCallback) {
                                    ((PasswordCallback) callback).setPassword(password.toCharArray());
                                }
                            }
                        });
    }

    /** The login module, and its options by name. */
    private static String jaas(String text) {
        JaasContext context =
                JaasContext.loadClientContext(Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text)));
        AppConfigurationEntry entry = context.configurationEntries().get(0);
        StringJoiner answer = new StringJoiner(" ");
        answer.add("login").add(encoded(entry.getLoginModuleName()));
        new TreeMap<>(entry.getOptions()).forEach((name, value) -> answer.add(encoded(name)).add(encoded("" + value)));
        return answer.toString();
    }

    private static byte[] bytes(String word) {
        return word.equals("=") ? new byte[0] : Base64.getDecoder().decode(word);
    }

    private static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return base64(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String base64(byte[] data) {
        return data.length == 0 ? "=" : Base64.getEncoder().encodeToString(data);
    }
}
