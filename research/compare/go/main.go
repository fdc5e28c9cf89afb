// Puts ten records, polls them and reads them by a subscription; prints what it got as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

const records = 10

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := kinesis.New(kinesis.Options{
		BaseEndpoint: aws.String(os.Args[1]),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	stream := aws.String(os.Args[2])
	for number := 0; number < records; number++ {
		text := fmt.Sprintf("%02d", number)
		_, err := client.PutRecord(ctx, &kinesis.PutRecordInput{StreamName: stream, PartitionKey: &text, Data: []byte(text)})
		check(err)
	}
	summary, err := client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: stream})
	check(err)
	shards, err := client.ListShards(ctx, &kinesis.ListShardsInput{StreamName: stream})
	check(err)
	arn := register(ctx, client, summary.StreamDescriptionSummary.StreamARN)
	polled, subscribed := []string{}, []string{}
	for _, shard := range shards.Shards {
		polled = append(polled, poll(ctx, client, stream, shard.ShardId)...)
		subscribed = append(subscribed, subscribe(ctx, client, arn, shard.ShardId)...)
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string][]string{"polled": polled, "subscribed": subscribed}))
}

func poll(ctx context.Context, client *kinesis.Client, stream, shard *string) (found []string) {
	opened, err := client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: stream, ShardId: shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	check(err)
	read, err := client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: opened.ShardIterator})
	check(err)
	for _, record := range read.Records {
		found = append(found, string(record.Data))
	}
	return found
}

func register(ctx context.Context, client *kinesis.Client, stream *string) *string {
	made, err := client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{StreamARN: stream, ConsumerName: aws.String("go")})
	check(err)
	for {
		described, err := client.DescribeStreamConsumer(ctx, &kinesis.DescribeStreamConsumerInput{ConsumerARN: made.Consumer.ConsumerARN})
		check(err)
		if described.ConsumerDescription.ConsumerStatus == types.ConsumerStatusActive {
			return made.Consumer.ConsumerARN
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// subscribe reads until the tip of the shard.
func subscribe(ctx context.Context, client *kinesis.Client, arn, shard *string) (found []string) {
	opened, err := client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: arn, ShardId: shard, StartingPosition: &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon},
	})
	check(err)
	events := opened.GetStream()
	defer events.Close()
	for event := range events.Events() {
		value := event.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value
		for _, record := range value.Records {
			found = append(found, string(record.Data))
		}
		if *value.MillisBehindLatest == 0 {
			return found
		}
	}
	check(events.Err())
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
