package main

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// administer creates the topic, changes it and prints what each call of ClusterAdmin returns.
// The test has committed offsets of the group before.
func administer(config *sarama.Config) error {
	admin, err := sarama.NewClusterAdmin(addresses(), config)
	if err != nil {
		return err
	}
	defer admin.Close()
	steps := []func(sarama.ClusterAdmin) error{changeTopic, changeConfigs, showGroups, deleteRecords}
	for _, step := range steps {
		if err := step(admin); err != nil {
			return err
		}
	}
	return nil
}

func pointer(text string) *string {
	return &text
}

func changeTopic(admin sarama.ClusterAdmin) error {
	retention := map[string]*string{"retention.ms": pointer("61234")}
	detail := sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3, ConfigEntries: retention}
	if err := admin.CreateTopic(*target, &detail, true); err != nil {
		return err
	}
	if err := admin.CreateTopic(*target, &detail, false); err != nil {
		return err
	}
	again := admin.CreateTopic(*target, &detail, false)
	show(object{"created again": fmt.Sprint(again)})
	return admin.CreatePartitions(*target, 4, nil, false)
}

func changeConfigs(admin sarama.ClusterAdmin) error {
	if err := showConfigs(admin, "created"); err != nil {
		return err
	}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{
		"segment.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: pointer("71234")},
	}
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, *target, entries, false); err != nil {
		return err
	}
	if err := showConfigs(admin, "incremental"); err != nil {
		return err
	}
	// The older call replaces all configs of the topic.
	replacing := map[string]*string{"max.message.bytes": pointer("81234")}
	if err := admin.AlterConfig(sarama.TopicResource, *target, replacing, false); err != nil {
		return err
	}
	return showConfigs(admin, "replaced")
}

// showConfigs prints the configs that were set for the topic.
func showConfigs(admin sarama.ClusterAdmin, step string) error {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: *target})
	if err != nil {
		return err
	}
	found := object{}
	for _, entry := range entries {
		if entry.Source == sarama.SourceTopic {
			found[entry.Name] = entry.Value
		}
	}
	show(object{"step": step, "configs": found})
	return nil
}

func showGroups(admin sarama.ClusterAdmin) error {
	groups, err := admin.ListConsumerGroups()
	if err != nil {
		return err
	}
	described, err := admin.DescribeConsumerGroups([]string{*group})
	if err != nil {
		return err
	}
	fetched, err := admin.ListConsumerGroupOffsets(*group, map[string][]int32{*topic: {0, 1}})
	if err != nil {
		return err
	}
	offsets := object{}
	for partition, name := range map[int32]string{0: "0", 1: "1"} {
		offsets[name] = fetched.GetBlock(*topic, partition).Offset
	}
	show(object{"protocol type": groups[*group], "state": described[0].State, "offsets": offsets})
	return nil
}

func deleteRecords(admin sarama.ClusterAdmin) error {
	if err := admin.DeleteRecords(*topic, map[int32]int64{0: 30}); err != nil {
		return err
	}
	bounds := object{}
	for name, position := range map[string]int64{"start": sarama.OffsetOldest, "end": sarama.OffsetNewest} {
		found, err := admin.ListOffsets(map[string]map[int32]int64{*topic: {0: position}}, nil)
		if err != nil {
			return err
		}
		// sarama returns ErrNoError here, not nil.
		if err := found[*topic][0].Err; err != nil && !errors.Is(err, sarama.ErrNoError) {
			return err
		}
		bounds[name] = found[*topic][0].Offset
	}
	show(object{"bounds": bounds})
	return admin.DeleteConsumerGroup(*group)
}
