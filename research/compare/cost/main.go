// Reads with the AWS SDK for Go in a loop: URL polling|fan-out WARM SEGMENT SEGMENTS. Reports as meter.py does.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
)

var (
	count, next, segment, last, beforeCount int64
	beforeNanos                             int64
	costs, millis                           = []float64{}, []float64{}
	stream                                  = aws.String("cost")
	shard                                   = aws.String("shardId-000000000000")
)

func main() {
	next, segment = number(3), number(4)
	last = next + segment*number(5)
	ctx := context.Background()
	client := kinesis.New(kinesis.Options{
		BaseEndpoint: aws.String(os.Args[1]),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
	})
	if os.Args[2] == "polling" {
		poll(ctx, client)
	} else {
		subscribe(ctx, client)
	}
}

func poll(ctx context.Context, client *kinesis.Client) {
	opened, err := client.GetShardIterator(ctx, &kinesis.GetShardIteratorInput{
		StreamName: stream, ShardId: shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	check(err)
	for iterator := opened.ShardIterator; iterator != nil; {
		read, err := client.GetRecords(ctx, &kinesis.GetRecordsInput{ShardIterator: iterator, Limit: aws.Int32(10_000)})
		check(err)
		add(read.Records)
		iterator = read.NextShardIterator
		if *read.MillisBehindLatest == 0 {
			time.Sleep(200 * time.Millisecond)
		}
	}
}

func subscribe(ctx context.Context, client *kinesis.Client) {
	summary, err := client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: stream})
	check(err)
	made, err := client.RegisterStreamConsumer(ctx, &kinesis.RegisterStreamConsumerInput{
		StreamARN: summary.StreamDescriptionSummary.StreamARN, ConsumerName: aws.String("go"),
	})
	check(err)
	time.Sleep(time.Second) // it becomes active
	opened, err := client.SubscribeToShard(ctx, &kinesis.SubscribeToShardInput{
		ConsumerARN: made.Consumer.ConsumerARN, ShardId: shard, StartingPosition: &types.StartingPosition{Type: types.ShardIteratorTypeTrimHorizon},
	})
	check(err)
	for event := range opened.GetStream().Events() {
		add(event.(*types.SubscribeToShardEventStreamMemberSubscribeToShardEvent).Value.Records)
	}
}

func add(records []types.Record) {
	if count >= last {
		addLive(records)
		return
	}
	count += int64(len(records))
	if count < next {
		return
	}
	now := cpu()
	if beforeCount > 0 {
		costs = append(costs, float64(now-beforeNanos)/1e3/float64(count-beforeCount))
	}
	beforeNanos, beforeCount = now, count
	for next <= count {
		next += segment
	}
	if count >= last {
		check(json.NewEncoder(os.Stdout).Encode(costs))
	}
}

func addLive(records []types.Record) {
	now := monotonic()
	for _, record := range records {
		put := int64(binary.BigEndian.Uint64(record.Data))
		if put == 0 {
			check(json.NewEncoder(os.Stdout).Encode(millis))
			return
		}
		millis = append(millis, float64(now-put)/1e6)
	}
}

// cpu is that of the process, user and system, all threads.
func cpu() int64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return used.Utime.Nano() + used.Stime.Nano()
}

// monotonic reads CLOCK_MONOTONIC, which the producer stamps the records with; time.Now does not give it.
func monotonic() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

func number(index int) int64 {
	found, err := strconv.ParseInt(os.Args[index], 10, 64)
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
