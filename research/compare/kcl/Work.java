import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.awscore.client.builder.AwsClientBuilder;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * A worker of the KCL: prints shard and data of each record, and checkpoints, until it is ended. With a fifth argument it checkpoints
 * each shard once in so many seconds, and its leases have the default settings; otherwise it is quick.
 */
public class Work {
    static long checkpointMillis = 0;

    static <B extends AwsClientBuilder<B, C>, C> C client(B builder, String endpoint) {
        var access = StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local"));
        return builder.endpointOverride(URI.create(endpoint)).region(Region.US_EAST_1).credentialsProvider(access).build();
    }

    public static void main(String[] arguments) {
        String endpoint = arguments[0], dynamodb = arguments[1], stream = arguments[2], application = arguments[3];
        var kinesis = client(KinesisAsyncClient.builder(), endpoint);
        var leases = client(DynamoDbAsyncClient.builder(), dynamodb);
        var cloudWatch = client(CloudWatchAsyncClient.builder(), dynamodb);
        boolean isQuick = arguments.length < 5;
        checkpointMillis = isQuick ? 0 : 1000 * Long.parseLong(arguments[4]);
        var start = InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        var config = new ConfigsBuilder(new SingleStreamTracker(stream, start), application, kinesis, leases, cloudWatch, UUID.randomUUID().toString(), Printer::new);
        var retrieval = application.equals("polling")
            ? new PollingConfig(stream, kinesis)
            : new FanOutConfig(kinesis).streamName(stream).applicationName(application);
        new Scheduler(
            config.checkpointConfig(),
            config.coordinatorConfig(),
            isQuick ? config.leaseManagementConfig().shardSyncIntervalMillis(2000).failoverTimeMillis(3000) : config.leaseManagementConfig(),
            config.lifecycleConfig(),
            config.metricsConfig().metricsFactory(new NullMetricsFactory()),
            config.processorConfig(),
            config.retrievalConfig().retrievalSpecificConfig(retrieval)
        ).run();
    }

    static class Printer implements ShardRecordProcessor {
        private String shard;
        private long checkpointed = 0;

        public void initialize(InitializationInput input) {
            shard = input.shardId();
        }

        public void processRecords(ProcessRecordsInput input) {
            input.records().forEach(record -> System.out.println(shard + " " + StandardCharsets.UTF_8.decode(record.data())));
            System.out.flush();
            if (System.currentTimeMillis() - checkpointed >= checkpointMillis) {
                checkpoint(input.checkpointer());
                checkpointed = System.currentTimeMillis();
            }
        }

        public void shardEnded(ShardEndedInput input) {
            checkpoint(input.checkpointer());
        }

        public void leaseLost(LeaseLostInput input) {}

        public void shutdownRequested(ShutdownRequestedInput input) {}

        private static void checkpoint(RecordProcessorCheckpointer checkpointer) {
            try {
                checkpointer.checkpoint();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
