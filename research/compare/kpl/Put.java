import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import software.amazon.awssdk.auth.credentials.AwsSessionCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;
import software.amazon.kinesis.producer.UserRecordResult;

/**
 * Arguments: ports of Kinesis and STS, stream, count, folder, credentials of the stream's account (key, secret, token). Puts user records 0, 1, 2, ... with the key of their number modulo 50; every fifth one has an explicit hash key instead. Prints how many
 * were put.
 */
public class Put {
    /** Until it has listed the shards, it puts each record alone. */
    private static final int WARM_UP = 10;
    private static final long WAIT_MILLIS = 2_000;

    public static void main(String[] arguments) throws Exception {
        var stream = arguments[2];
        var count = Integer.parseInt(arguments[3]);
        var access = AwsSessionCredentials.create(arguments[5], arguments[6], arguments[7]);
        var configuration = new KinesisProducerConfiguration()
            .setRegion("us-east-1")
            .setCredentialsProvider(StaticCredentialsProvider.create(access))
            .setKinesisEndpoint("127.0.0.1")
            .setKinesisPort(Long.parseLong(arguments[0]))
            .setStsEndpoint("127.0.0.1")
            .setStsPort(Long.parseLong(arguments[1]))
            .setVerifyCertificate(false)
            .setMetricsLevel("none")
            .setTempDirectory(arguments[4]);
        var producer = new KinesisProducer(configuration);
        List<Future<UserRecordResult>> results = new ArrayList<>();
        var range = BigInteger.TWO.pow(128);
        for (int number = 0; number < count; number++) {
            if (number == WARM_UP) {
                producer.flushSync();
                Thread.sleep(WAIT_MILLIS);
            }
            var data = ByteBuffer.wrap(Integer.toString(number).getBytes());
            var hashKey = range.multiply(BigInteger.valueOf(number % 7)).divide(BigInteger.valueOf(7)).toString();
            results.add(producer.addUserRecord(stream, "key-" + number % 50, number % 5 == 0 ? hashKey : null, data));
        }
        producer.flushSync();
        int put = 0;
        for (var result : results) {
            put += result.get().isSuccessful() ? 1 : 0;
        }
        producer.destroy();
        System.out.println(put);
        System.exit(0);
    }
}
