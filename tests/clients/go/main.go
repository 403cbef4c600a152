// Program clients runs sarama for tests/clients/test_sarama.py. It prints one JSON object a line.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// object is one line of the output.
type object map[string]any

var (
	bootstrap  = flag.String("bootstrap", "", "host:port of the brokers, separated by commas")
	version    = flag.String("version", sarama.MaxVersion.String(), "the version of Kafka that sarama assumes")
	topic      = flag.String("topic", "", "the topic to read, or to write if nothing is read")
	target     = flag.String("target", "", "the topic to which copy writes")
	group      = flag.String("group", "", "the consumer group")
	id         = flag.String("id", "", "the transactional id")
	codec      = flag.String("codec", "none", "none, gzip, snappy, lz4 or zstd")
	idempotent = flag.Bool("idempotent", false, "produce with enable.idempotence")
	strategy   = flag.String("strategy", "range", "range, sticky, roundrobin or cooperative-sticky")
	metadata   = flag.Bool("metadata", false, "send the generation and the member with the offsets of a transaction")
	count      = flag.Int("count", 0, "how many records to produce")
	printing   sync.Mutex
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: clients produce|consume|transactions|copy|member|admin [flags]")
	}
	commands := map[string]func(*sarama.Config) error{
		"produce": produce, "consume": consume, "transactions": transactions, "copy": copyInTransactions,
		"member": member, "admin": administer,
	}
	command, found := commands[os.Args[1]]
	if !found {
		log.Fatalf("unknown command %q", os.Args[1])
	}
	// flag.ExitOnError is the policy, so Parse returns no error.
	_ = flag.CommandLine.Parse(os.Args[2:])
	sarama.Logger = log.New(os.Stderr, "sarama ", log.LstdFlags|log.Lmicroseconds)
	config, err := newConfig()
	if err == nil {
		err = command(config)
	}
	if err != nil {
		log.Fatalf("%s failed: %v", os.Args[1], err)
	}
}

func newConfig() (*sarama.Config, error) {
	config := sarama.NewConfig()
	parsed, err := sarama.ParseKafkaVersion(*version)
	if err != nil {
		return nil, err
	}
	config.Version = parsed
	if err := config.Producer.Compression.UnmarshalText([]byte(*codec)); err != nil {
		return nil, err
	}
	strategies := map[string]sarama.BalanceStrategy{
		"range":              sarama.NewBalanceStrategyRange(),
		"sticky":             sarama.NewBalanceStrategySticky(),
		"roundrobin":         sarama.NewBalanceStrategyRoundRobin(),
		"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky(),
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[*strategy]}
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	// A consumer closes only after its fetch has returned.
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Admin.Timeout = time.Minute
	if *idempotent || *id != "" {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	config.Producer.Transaction.ID = *id
	return config, nil
}

func addresses() []string {
	return strings.Split(*bootstrap, ",")
}

func show(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(text))
}

func showRecord(message *sarama.ConsumerMessage) {
	show(object{"partition": message.Partition, "offset": message.Offset, "value": string(message.Value)})
}

// produce sends numbered values and prints where each was appended.
func produce(config *sarama.Config) error {
	producer, err := sarama.NewAsyncProducer(addresses(), config)
	if err != nil {
		return err
	}
	go func() {
		for number := range *count {
			value := fmt.Sprintf("value-%d", number)
			producer.Input() <- &sarama.ProducerMessage{
				Topic: *topic, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value), Metadata: value,
			}
		}
		producer.AsyncClose()
	}()
	var failures error
	failed := make(chan struct{})
	go func() {
		defer close(failed)
		for failure := range producer.Errors() {
			failures = errors.Join(failures, failure)
		}
	}()
	for sent := range producer.Successes() {
		show(object{"partition": sent.Partition, "offset": sent.Offset, "value": sent.Metadata})
	}
	<-failed
	return failures
}

// consume prints all records up to the ends that the partitions have at the start.
func consume(config *sarama.Config) error {
	client, err := sarama.NewClient(addresses(), config)
	if err != nil {
		return err
	}
	defer client.Close()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partitions, err := client.Partitions(*topic)
	if err != nil {
		return err
	}
	for _, partition := range partitions {
		end, err := client.GetOffset(*topic, partition, sarama.OffsetNewest)
		if err != nil {
			return err
		}
		if end == 0 {
			continue
		}
		claim, err := consumer.ConsumePartition(*topic, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for position := int64(0); position < end; {
			select {
			case message := <-claim.Messages():
				showRecord(message)
				position = message.Offset + 1
			case failure := <-claim.Errors():
				return failure
			}
		}
		if err := claim.Close(); err != nil {
			return err
		}
	}
	return nil
}

// send produces the values in the current transaction and waits until all are acknowledged.
func send(producer sarama.AsyncProducer, to string, values []string) error {
	go func() {
		for _, value := range values {
			producer.Input() <- &sarama.ProducerMessage{
				Topic: to, Key: sarama.StringEncoder(value), Value: sarama.StringEncoder(value),
			}
		}
	}()
	var failures error
	for range values {
		select {
		case <-producer.Successes():
		case failure := <-producer.Errors():
			failures = errors.Join(failures, failure)
		}
	}
	return failures
}

// transactions runs ten transactions. It commits those with an even number and aborts the others.
func transactions(config *sarama.Config) error {
	producer, err := sarama.NewAsyncProducer(addresses(), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := range 10 {
		values := make([]string, *count)
		for index := range values {
			values[index] = fmt.Sprintf("%d-%d", number, index)
		}
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		if err := send(producer, *topic, values); err != nil {
			return err
		}
		end := producer.CommitTxn
		if number%2 == 1 {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			return fmt.Errorf("transaction %d: %w", number, err)
		}
		show(object{"transaction": number, "committed": number%2 == 0})
	}
	return nil
}

// runGroup joins the group until SIGTERM arrives, and leaves it then.
func runGroup(config *sarama.Config, handler sarama.ConsumerGroupHandler) error {
	joined, err := sarama.NewConsumerGroup(addresses(), *group, config)
	if err != nil {
		return err
	}
	go func() {
		for failure := range joined.Errors() {
			log.Printf("error of the group: %v", failure)
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		if err := joined.Consume(ctx, []string{*topic}, handler); err != nil {
			return err
		}
	}
	return joined.Close()
}

// reader prints each record before it marks the record for the next commit.
type reader struct{}

func (reader) Setup(sarama.ConsumerGroupSession) error { return nil }

func (reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	show(object{"started": claim.Partition()})
	defer show(object{"stopped": claim.Partition()})
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			showRecord(message)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func member(config *sarama.Config) error {
	return runGroup(config, reader{})
}

// copier writes each record to the target. The transaction of the copies has the offset of the source.
type copier struct {
	sync.Mutex
	producer sarama.AsyncProducer
	done     int
}

func (*copier) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			// All claims share one producer, and a producer has one transaction at a time.
			if err := c.copyOne(session, message); err != nil {
				log.Fatalf("copy failed: %v", err)
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// copyOne aborts every third transaction first and then repeats it.
func (c *copier) copyOne(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) error {
	c.Lock()
	defer c.Unlock()
	c.done++
	if c.done%3 == 0 {
		if err := c.fill(session, message); err != nil {
			return err
		}
		if err := c.producer.AbortTxn(); err != nil {
			return err
		}
	}
	if err := c.fill(session, message); err != nil {
		return err
	}
	return c.producer.CommitTxn()
}

func (c *copier) fill(session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage) error {
	if err := c.producer.BeginTxn(); err != nil {
		return err
	}
	if err := send(c.producer, *target, []string{string(message.Value)}); err != nil {
		return err
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{
		message.Topic: {{Partition: message.Partition, Offset: message.Offset + 1}},
	}
	if *metadata {
		from := sarama.NewConsumerGroupMetadataFromSession(session, *group, nil)
		return c.producer.AddOffsetsToTxnWithGroupMetadata(offsets, from)
	}
	return c.producer.AddOffsetsToTxn(offsets, *group)
}

func copyInTransactions(config *sarama.Config) error {
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	// The new producer ends the transaction that a killed process left open, so the group comes after it.
	producer, err := sarama.NewAsyncProducer(addresses(), config)
	if err != nil {
		return err
	}
	defer producer.Close()
	return runGroup(config, &copier{producer: producer})
}
