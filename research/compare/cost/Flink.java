import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Properties;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.streaming.connectors.kinesis.FlinkKinesisConsumer;
import org.apache.flink.streaming.connectors.kinesis.serialization.KinesisDeserializationSchema;

/** Reads with Flink's connector on a cluster in this process, one subtask: URL polling|fan-out WARM SEGMENT SEGMENTS. */
public class Flink {
    public static void main(String[] arguments) throws Exception {
        Meter.start(arguments[2], arguments[3], arguments[4]);
        var properties = new Properties();
        properties.putAll(Map.of(
            "aws.region", "us-east-1",
            "aws.endpoint", arguments[0],
            "aws.credentials.provider", "BASIC",
            "aws.credentials.provider.basic.accesskeyid", "local",
            "aws.credentials.provider.basic.secretkey", "local",
            "flink.stream.initpos", "TRIM_HORIZON",
            "flink.stream.recordpublisher", arguments[1].equals("polling") ? "POLLING" : "EFO",
            "flink.stream.efo.consumername", "flink"
        ));
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        environment.getConfig().enableObjectReuse();
        environment.addSource(new FlinkKinesisConsumer<>("cost", new Bytes(), properties)).addSink(new Measured());
        environment.execute();
    }

    static class Bytes implements KinesisDeserializationSchema<byte[]> {
        public byte[] deserialize(byte[] data, String key, String number, long arrival, String stream, String shard) {
            return data;
        }

        public TypeInformation<byte[]> getProducedType() {
            return PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;
        }
    }

    static class Measured implements SinkFunction<byte[]> {
        public void invoke(byte[] data, Context context) {
            Meter.add(ByteBuffer.wrap(data));
        }
    }
}
