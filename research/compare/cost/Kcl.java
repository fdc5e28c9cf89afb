import java.net.URI;
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
import software.amazon.kinesis.common.KinesisClientUtil;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.NullMetricsFactory;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.fanout.FanOutConfig;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/** Reads with the KCL, no metrics sent: URL polling|fan-out WARM SEGMENT SEGMENTS. It polls five times a second. AWS_ENDPOINT_URL_DYNAMODB is where its leases are. */
public class Kcl {
    static <B extends AwsClientBuilder<B, C>, C> B local(B builder) {
        var access = StaticCredentialsProvider.create(AwsBasicCredentials.create("local", "local"));
        return builder.region(Region.US_EAST_1).credentialsProvider(access);
    }

    public static void main(String[] arguments) {
                Meter.start(arguments[2], arguments[3], arguments[4]);
        var application = UUID.randomUUID().toString();
        var kinesis = KinesisClientUtil.createKinesisAsyncClient(local(KinesisAsyncClient.builder()).endpointOverride(URI.create(arguments[0])));
        var leases = local(DynamoDbAsyncClient.builder()).build();
        var cloudWatch = local(CloudWatchAsyncClient.builder()).build();
        var start = InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON);
        var config = new ConfigsBuilder(new SingleStreamTracker("cost", start), application, kinesis, leases, cloudWatch, application, Measured::new);
        var retrieval = arguments[1].equals("polling")
            ? new PollingConfig("cost", kinesis).idleTimeBetweenReadsInMillis(200)
            : new FanOutConfig(kinesis).streamName("cost").applicationName(application);
        new Scheduler(
            config.checkpointConfig(),
            config.coordinatorConfig(),
            config.leaseManagementConfig(),
            config.lifecycleConfig(),
            config.metricsConfig().metricsFactory(new NullMetricsFactory()),
            config.processorConfig(),
            config.retrievalConfig().retrievalSpecificConfig(retrieval)
        ).run();
    }

    static class Measured implements ShardRecordProcessor {
        public void initialize(InitializationInput input) {}

        public void processRecords(ProcessRecordsInput input) {
            input.records().forEach(record -> Meter.add(record.data()));
        }

        public void shardEnded(ShardEndedInput input) {}

        public void leaseLost(LeaseLostInput input) {}

        public void shutdownRequested(ShutdownRequestedInput input) {}
    }
}
