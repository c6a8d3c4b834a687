package org.rackassign.broker;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;

/**
 * The racks of replicas, each partition asked for once as long as the metadata of the cluster stay the same.
 *
 * <p>A broker makes a set for each partition that it is asked for: that is half of the time of a plan of a large group,
 * and most of its garbage. Where members come and go one after the other, the metadata are mostly those of the last plan.
 * Then the describer equals that one's, because it is the same image of metadata.
 */
final class KnownRacks {
    private final SubscribedTopicDescriber describer;
    private final Map<Uuid, int[]> topics = new HashMap<>();
    private final Map<String, Integer> rackNumbers = new HashMap<>();
    /** The number of each set, by the bits of its racks, or by itself if there are more racks than bits. */
    private final Map<Object, Integer> numbers = new HashMap<>();
    private final List<Set<String>> sets = new ArrayList<>();

    KnownRacks(SubscribedTopicDescriber describer) {
        this.describer = describer;
    }

    /** Returns whether this is what a describer describes. */
    boolean isOf(SubscribedTopicDescriber other) {
        return describer != null && describer.equals(other);
    }

    int partitions(Uuid topic) {
        return describer.numPartitions(topic);
    }

    /** Returns the number of the set of racks of each partition of a topic. */
    synchronized int[] setsOf(Uuid topic, int partitions) {
        int[] known = topics.get(topic);
        if (known != null && known.length == partitions) {
            return known;
        }
        int[] read = new int[partitions];
        for (int partition = 0; partition < partitions; partition++) {
            Set<String> racks = describer.racksForPartition(topic, partition);
            read[partition] = numberOf(racks == null ? Set.of() : racks);
        }
        topics.put(topic, read);
        return read;
    }

    private int numberOf(Set<String> racks) {
        long bits = 0;
        boolean fits = true;
        for (String rack : racks) {
            int number = rackNumbers.computeIfAbsent(rack, each -> rackNumbers.size());
            fits &= number < Long.SIZE;
            bits |= 1L << number;
        }
        Integer number = fits ? numbers.get(bits) : numbers.get(racks);
        if (number == null) {
            number = sets.size();
            // A copy, as it is the broker's.
            Set<String> copy = new HashSet<>(racks);
            numbers.put(fits ? bits : copy, number);
            sets.add(copy);
        }
        return number;
    }

    /** Returns the sets of racks of all topics that were asked for until now, by number. */
    synchronized List<Set<String>> sets() {
        return List.copyOf(sets);
    }
}
