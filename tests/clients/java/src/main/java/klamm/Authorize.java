package klamm;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.internals.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Kafka's StandardAuthorizer, and prints for each world a line of JSON: whether each question is allowed.
 *
 * <p>Usage: Authorize FILE. A line of the file is a world, in JSON: settings; ACLs as [resource type, name, pattern
 * type, principal, host, operation, permission], by Kafka's numbers; how many of them are there from the start; the
 * places of those that are removed again; questions as [principal, host, operation, resource type, name], where null as
 * the name asks whether there is any.
 */
public final class Authorize {
    private Authorize() {}

    /** See the class. */
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            JsonNode world = json.readTree(line);
            StandardAuthorizer authorizer = load(world);
            List<Boolean> answers = new ArrayList<>();
            for (JsonNode question : world.get("questions")) {
                answers.add(ask(authorizer, question) == AuthorizationResult.ALLOWED);
            }
            System.out.println(json.writeValueAsString(answers));
        }
    }

    private static StandardAuthorizer load(JsonNode world) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
                "super.users", world.get("super_users").asText(),
                "allow.everyone.if.no.acl.found", world.get("default").asText()));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), new LinkedHashMap<>()));
        Map<Uuid, StandardAcl> snapshot = new LinkedHashMap<>();
        JsonNode acls = world.get("acls");
        int snapshotSize = world.get("snapshot_size").asInt();
        for (int place = 0; place < snapshotSize; place++) {
            snapshot.put(new Uuid(1, place), acl(acls.get(place)));
        }
        authorizer.loadSnapshot(snapshot);
        authorizer.completeInitialLoad();
        for (int place = snapshotSize; place < acls.size(); place++) {
            authorizer.addAcl(new Uuid(1, place), acl(acls.get(place)));
        }
        for (JsonNode place : world.get("removed")) {
            authorizer.removeAcl(new Uuid(1, place.asInt()));
        }
        return authorizer;
    }

    private static StandardAcl acl(JsonNode fields) {
        return new StandardAcl(
                ResourceType.fromCode((byte) fields.get(0).asInt()),
                fields.get(1).asText(),
                PatternType.fromCode((byte) fields.get(2).asInt()),
                fields.get(3).asText(),
                fields.get(4).asText(),
                AclOperation.fromCode((byte) fields.get(5).asInt()),
                AclPermissionType.fromCode((byte) fields.get(6).asInt()));
    }

    private static AuthorizationResult ask(StandardAuthorizer authorizer, JsonNode question) throws Exception {
        AuthorizableRequestContext context = new Context(
                SecurityUtils.parseKafkaPrincipal(question.get(0).asText()),
                InetAddress.getByName(question.get(1).asText()));
        AclOperation operation = AclOperation.fromCode((byte) question.get(2).asInt());
        ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
        if (question.get(4).isNull()) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
