// franz-go's cooperative-sticky balancer as a peer of benchmarks/peers.py.
//
// Each line of the input is a request in JSON: a group, which is answered with the assignment that it has after its
// second rebalance, or a number of calls, which is answered with the nanoseconds that each of them took.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"reflect"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type member struct {
	ID         string
	Rack       string
	Topics     []string
	Owned      map[string][]int32
	Generation int32
}

type request struct {
	Members []member
	Leaders map[string][]string // the rack of each partition's leader
	Calls   int
}

// join returns a member's part of a JoinGroup response, as franz-go's client sends it.
func (m member) join() kmsg.JoinGroupResponseMember {
	meta, sticky := kmsg.NewConsumerMemberMetadata(), kmsg.NewStickyMemberMetadata()
	meta.Version, meta.Topics, meta.Generation, meta.Rack = 3, m.Topics, m.Generation, &m.Rack
	sticky.Generation = m.Generation
	for topic, partitions := range m.Owned {
		owned := kmsg.NewConsumerMemberMetadataOwnedPartition()
		owned.Topic, owned.Partitions = topic, partitions
		meta.OwnedPartitions = append(meta.OwnedPartitions, owned)
		current := kmsg.NewStickyMemberMetadataCurrentAssignment()
		current.Topic, current.Partitions = topic, partitions
		sticky.CurrentAssignment = append(sticky.CurrentAssignment, current)
	}
	meta.UserData = sticky.AppendTo(nil)
	joined := kmsg.NewJoinGroupResponseMember()
	joined.MemberID, joined.ProtocolMetadata = m.ID, meta.AppendTo(nil)
	return joined
}

// set sets a private field of a balancer. The client does it in balanceGroup, and without a client there is no other way.
func set(balancer *kgo.ConsumerBalancer, name string, value any) {
	field := reflect.ValueOf(balancer).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// balance returns a plan and how long it took, without the reading of the members' metadata.
func (r request) balance(joined []kmsg.JoinGroupResponseMember) (kgo.IntoSyncAssignment, time.Duration) {
	made, _, err := kgo.CooperativeStickyBalancer().MemberBalancer(joined)
	check(err)
	balancer := made.(*kgo.ConsumerBalancer)
	set(balancer, "partitionRacks", r.Leaders)
	set(balancer, "balanceRacks", true)
	counts := make(map[string]int32, len(r.Leaders))
	for topic, leaders := range r.Leaders {
		counts[topic] = int32(len(leaders))
	}
	begin := time.Now()
	plan, err := balancer.BalanceOrError(counts)
	took := time.Since(begin)
	check(err)
	return plan, took
}

func (r request) joins() []kmsg.JoinGroupResponseMember {
	joined := make([]kmsg.JoinGroupResponseMember, 0, len(r.Members))
	for _, m := range r.Members {
		joined = append(joined, m.join())
	}
	return joined
}

// target returns what members have after a rebalance that withholds what moves, and the one that assigns it.
func (r request) target() map[string]map[string][]int32 {
	now := r
	found := map[string]map[string][]int32{}
	for round := int32(1); round <= 2; round++ {
		plan, _ := now.balance(now.joins())
		for _, each := range plan.IntoSyncAssignment() {
			owned, err := kgo.CooperativeStickyBalancer().ParseSyncAssignment(each.MemberAssignment)
			check(err)
			found[each.MemberID] = owned
		}
		now.Members = append([]member(nil), r.Members...)
		for i := range now.Members {
			now.Members[i].Owned, now.Members[i].Generation = found[now.Members[i].ID], 1000+round
		}
	}
	return found
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	var group request
	var joined []kmsg.JoinGroupResponseMember
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for in.More() {
		var asked request
		check(in.Decode(&asked))
		if asked.Calls == 0 {
			group, joined = asked, asked.joins()
			check(out.Encode(group.target()))
			continue
		}
		took := make([]int64, asked.Calls)
		for i := range took {
			_, each := group.balance(joined)
			took[i] = each.Nanoseconds()
		}
		check(out.Encode(took))
	}
}
