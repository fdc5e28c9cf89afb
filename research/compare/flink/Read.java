import java.util.Properties;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.streaming.connectors.kinesis.FlinkKinesisConsumer;
import org.apache.flink.streaming.connectors.kinesis.serialization.KinesisDeserializationSchema;

/**
 * A job of Flink on a cluster in this process, two subtasks: prints shard and data of each record until it is ended. A fourth argument is a
 * folder of checkpoints, each half a second, the fifth a checkpoint to go on from.
 */
public class Read {
    public static void main(String[] arguments) throws Exception {
        String endpoint = arguments[0], stream = arguments[1], publisher = arguments[2];
        var properties = new Properties();
        properties.putAll(java.util.Map.of(
            "aws.region", "us-east-1",
            "aws.endpoint", endpoint,
            "aws.credentials.provider", "BASIC",
            "aws.credentials.provider.basic.accesskeyid", "local",
            "aws.credentials.provider.basic.secretkey", "local",
            "flink.stream.initpos", "TRIM_HORIZON",
            "flink.stream.recordpublisher", publisher,
            "flink.stream.efo.consumername", "flink",
            "flink.shard.discovery.intervalmillis", "1000"
        ));
        var configuration = new Configuration();
        if (arguments.length > 3) {
            configuration.setString("state.checkpoints.dir", "file://" + arguments[3]);
            configuration.setString("execution.checkpointing.interval", "500ms");
            configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        }
        if (arguments.length > 4) {
            configuration.setString("execution.savepoint.path", arguments[4]);
        }
        var environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        environment.addSource(new FlinkKinesisConsumer<>(stream, new ShardAndData(), properties)).uid("source").addSink(new Print()).uid("sink");
        environment.execute();
    }

    static class ShardAndData implements KinesisDeserializationSchema<String> {
        public String deserialize(byte[] data, String key, String number, long arrival, String stream, String shard) {
            return shard + " " + new String(data);
        }

        public TypeInformation<String> getProducedType() {
            return Types.STRING;
        }
    }

    static class Print implements SinkFunction<String> {
        public void invoke(String line, Context context) {
            System.out.println(line);
            System.out.flush();
        }
    }
}
