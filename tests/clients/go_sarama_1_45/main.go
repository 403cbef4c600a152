// Sends records with sarama 1.45.0, whose batches have no largest timestamp in their header.
//
// Usage: clients BOOTSTRAP TOPIC COUNT. It sends the records 0, 1, ... to partition 0, one in each batch.
package main

import (
	"log"
	"os"
	"strconv"

	"github.com/IBM/sarama"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: clients BOOTSTRAP TOPIC COUNT")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err == nil {
		err = send(os.Args[1], os.Args[2], count)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func send(bootstrap string, topic string, count int) error {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	for number := range count {
		value := sarama.StringEncoder(strconv.Itoa(number))
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: value}); err != nil {
			return err
		}
	}
	return producer.Close()
}
