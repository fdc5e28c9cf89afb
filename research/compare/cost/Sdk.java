import java.net.URI;
import java.util.concurrent.CompletableFuture;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/** Reads with the AWS SDK for Java in a loop: URL polling|fan-out WARM SEGMENT SEGMENTS. */
public class Sdk {
    private static final String SHARD = "shardId-000000000000";

    public static void main(String[] arguments) throws Exception {
        Meter.start(arguments[2], arguments[3], arguments[4]);
        var client = KinesisAsyncClient.builder()
            .endpointOverride(URI.create(arguments[0]))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local")))
            .build();
        if (arguments[1].equals("polling")) {
            poll(client);
        } else {
            subscribe(client);
        }
    }

    static void poll(KinesisAsyncClient client) throws Exception {
        var iterator = client.getShardIterator(r -> r.streamName("cost").shardId(SHARD).shardIteratorType(ShardIteratorType.TRIM_HORIZON)).get().shardIterator();
        while (iterator != null) {
            var from = iterator;
            var answer = client.getRecords(r -> r.shardIterator(from).limit(10_000)).get();
            answer.records().forEach(record -> Meter.add(record.data().asByteBuffer()));
            iterator = answer.nextShardIterator();
            if (answer.millisBehindLatest() == 0) {
                Thread.sleep(200);
            }
        }
    }

    static void subscribe(KinesisAsyncClient client) throws Exception {
        var stream = client.describeStreamSummary(r -> r.streamName("cost")).get().streamDescriptionSummary().streamARN();
        var consumer = client.registerStreamConsumer(r -> r.streamARN(stream).consumerName("java")).get().consumer().consumerARN();
        Thread.sleep(1000); // it becomes active
        var failed = new CompletableFuture<Void>();
        var handler = SubscribeToShardResponseHandler.builder().onError(failed::completeExceptionally).subscriber(event -> {
            if (event instanceof SubscribeToShardEvent records) {
                records.records().forEach(record -> Meter.add(record.data().asByteBuffer()));
            }
        }).build();
        client.subscribeToShard(r -> r.consumerARN(consumer).shardId(SHARD).startingPosition(p -> p.type(ShardIteratorType.TRIM_HORIZON)), handler);
        failed.get();
    }
}
