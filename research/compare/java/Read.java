import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.awssdk.services.kinesis.model.ConsumerStatus;
import software.amazon.awssdk.services.kinesis.model.ShardIteratorType;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardEvent;
import software.amazon.awssdk.services.kinesis.model.SubscribeToShardResponseHandler;

/** Puts ten records, polls them and reads them by a subscription; prints what it got as JSON. */
public class Read {
    private static final int RECORDS = 10;
    private final KinesisAsyncClient client;
    private final String stream;

    Read(String endpoint, String stream) {
        var access = AwsBasicCredentials.create("local", "local");
        this.stream = stream;
        this.client = KinesisAsyncClient.builder()
            .endpointOverride(URI.create(endpoint))
            .region(Region.US_EAST_1)
            .credentialsProvider(StaticCredentialsProvider.create(access))
            .build();
    }

    public static void main(String[] arguments) throws Exception {
        new Read(arguments[0], arguments[1]).run();
        System.exit(0);
    }

    void run() throws Exception {
        for (int number = 0; number < RECORDS; number++) {
            var text = String.format("%02d", number);
            wait(client.putRecord(r -> r.streamName(stream).partitionKey(text).data(SdkBytes.fromUtf8String(text))));
        }
        var arn = wait(client.describeStreamSummary(r -> r.streamName(stream))).streamDescriptionSummary().streamARN();
        var consumer = register(arn);
        List<String> polled = new ArrayList<>(), subscribed = new ArrayList<>();
        for (var shard : wait(client.listShards(r -> r.streamName(stream))).shards()) {
            polled.addAll(poll(shard.shardId()));
            subscribed.addAll(subscribe(consumer, shard.shardId()));
        }
        System.out.printf("{\"polled\":%s,\"subscribed\":%s}%n", json(polled), json(subscribed));
    }

    List<String> poll(String shard) throws Exception {
        var opened = wait(client.getShardIterator(r -> r.streamName(stream).shardId(shard).shardIteratorType(ShardIteratorType.TRIM_HORIZON)));
        var read = wait(client.getRecords(r -> r.shardIterator(opened.shardIterator())));
        return read.records().stream().map(record -> record.data().asUtf8String()).collect(Collectors.toList());
    }

    String register(String stream) throws Exception {
        var arn = wait(client.registerStreamConsumer(r -> r.streamARN(stream).consumerName("java"))).consumer().consumerARN();
        while (wait(client.describeStreamConsumer(r -> r.consumerARN(arn))).consumerDescription().consumerStatus() != ConsumerStatus.ACTIVE) {
            Thread.sleep(100);
        }
        return arn;
    }

    /** Reads until the tip of the shard. */
    List<String> subscribe(String consumer, String shard) throws Exception {
        var found = new ArrayList<String>();
        var atTip = new CompletableFuture<List<String>>();
        var handler = SubscribeToShardResponseHandler.builder().onError(atTip::completeExceptionally).subscriber(event -> {
            if (event instanceof SubscribeToShardEvent records) {
                records.records().forEach(record -> found.add(record.data().asUtf8String()));
                if (records.millisBehindLatest() == 0) {
                    atTip.complete(found);
                }
            }
        }).build();
        client.subscribeToShard(r -> r.consumerARN(consumer).shardId(shard).startingPosition(p -> p.type(ShardIteratorType.TRIM_HORIZON)), handler);
        return wait(atTip);
    }

    static <T> T wait(CompletableFuture<T> answer) throws Exception {
        return answer.get(60, TimeUnit.SECONDS);
    }

    static String json(List<String> texts) {
        return texts.stream().map(text -> '"' + text + '"').collect(Collectors.joining(",", "[", "]"));
    }
}
