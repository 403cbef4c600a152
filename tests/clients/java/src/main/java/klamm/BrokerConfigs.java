package klamm;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;

/**
 * Prints a line of JSON for each config of Kafka's broker, internal ones included: [name, type, default as text, update
 * mode]. The default is null where there is none.
 */
public final class BrokerConfigs {
    private BrokerConfigs() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : AbstractKafkaConfig.CONFIG_DEF.configKeys().values()) {
            String defaultText = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            String mode = modes.getOrDefault(key.name, "read-only");
            System.out.println(json.writeValueAsString(Arrays.asList(key.name, key.type, defaultText, mode)));
        }
    }
}
