package org.rackassign.broker;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * An assignor of consumer groups (KIP-848) that looks at racks: balance first, then locality over the racks of replicas,
 * then as few moves as possible, each exactly.
 *
 * <p>Rules, because a broker runs it inside a heartbeat:
 *
 * <ul>
 *   <li>Nothing is thrown. An exception of {@code assign()} ends members for good, one per heartbeat. Anything that is
 *       not expected leads to a plain plan ({@link StickyPlan}) and one line in the log.
 *   <li>Each answer is checked before it is returned: every partition of a subscribed topic has one owner, who is
 *       subscribed to it. A broker accepts anything else silently.
 *   <li>Work is limited ({@link WorkBudget}). Past the limit the plain plan is the answer.
 *   <li>One instance serves all groups at the same time, and a broker creates about ten of them at its start. So there
 *       is no state but the settings and {@link KnownRacks}, which change no answer, and no thread.
 * </ul>
 */
public class RackAwareAssignor implements ConsumerGroupPartitionAssignor, Configurable {
    /** The name by which groups and {@code group.remote.assignor} know it. */
    public static final String NAME = "rackassign";

    /** The property of brokers that limits the time of one assignment, in milliseconds. */
    public static final String MAX_MS_CONFIG = "rackassign.max.ms";

    /** The property of brokers that selects what is balanced first: {@code total}, or {@code topic}. */
    public static final String BALANCE_CONFIG = "rackassign.balance";

    private static final Logger LOG = LoggerFactory.getLogger(RackAwareAssignor.class);
    private static final long DEFAULT_MAX_MS = 50;
    private static final long MAX_STEPS = 20_000_000;
    /** With more pairs of a topic and a subscriber even a plain plan that balances topics takes longer than a heartbeat. */
    private static final long MAX_PAIRS = 1 << 21;
    private static final long WARN_EVERY_NANOS = 60_000_000_000L;

    /** When a warning was logged last: a group that needs one may be planned again each second. */
    private final AtomicLong warned = new AtomicLong(System.nanoTime() - WARN_EVERY_NANOS);

    /** What the describer of the last plan has shown. */
    private volatile KnownRacks known = new KnownRacks(null);

    private volatile long maxMillis = DEFAULT_MAX_MS;
    private volatile boolean balancesTopics;
    /** What is wrong with the properties of the broker; null for nothing. */
    private volatile String invalid;

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public void configure(Map<String, ?> properties) {
        // An exception would end the broker, and a line here would be logged ten times.
        Object limit = properties.get(MAX_MS_CONFIG);
        try {
            maxMillis = limit == null ? DEFAULT_MAX_MS : Math.max(1, Long.parseLong(limit.toString().trim()));
        } catch (NumberFormatException error) {
            invalid = MAX_MS_CONFIG + "=" + limit + " is no number of milliseconds";
        }
        Object balance = properties.get(BALANCE_CONFIG);
        String mode = balance == null ? "total" : balance.toString().trim();
        balancesTopics = mode.equals("topic");
        if (!balancesTopics && !mode.equals("total")) {
            invalid = BALANCE_CONFIG + "=" + balance + " is neither total nor topic";
        }
    }

    @Override
    public GroupAssignment assign(GroupSpec spec, SubscribedTopicDescriber describer) {
        GroupModel group = null;
        try {
            String problem = invalid;
            if (problem != null) {
                invalid = null;
                LOG.warn("{}; the default is used", problem);
            }
            KnownRacks racks = knownOf(describer);
            group = GroupModel.of(spec, racks, balancesTopics);
            if (group.balancesTopics && group.pairs > MAX_PAIRS) {
                Throwable why = new WorkBudget.ExhaustedException("more than " + MAX_PAIRS + " pairs of a topic and a subscriber");
                warn("with {} members and {} partitions not topics are balanced but totals: {}", group, why);
                group = GroupModel.of(spec, racks, false);
            }
            return assignment(spec, group, owners(group));
        } catch (WorkBudget.ExhaustedException error) {
            warn("a plan of {} members and {} partitions would need {}; balanced, and local only as far as partitions move", group, error);
        } catch (Throwable error) { // NOPMD - members would end for good
            warn("unexpected, for {} members and {} partitions; a plain balanced plan: {}", group, error);
        }
        try {
            return group == null ? kept(spec) : assignment(spec, group, StickyPlan.of(group));
        } catch (Throwable error) { // NOPMD - the same
            warn("unexpected, for {} members and {} partitions; the assignment stays: {}", group, error);
            return kept(spec);
        }
    }

    private KnownRacks knownOf(SubscribedTopicDescriber describer) {
        KnownRacks racks = known;
        if (!racks.isOf(describer)) {
            racks = new KnownRacks(describer);
            known = racks;
        }
        return racks;
    }

    private int[] owners(GroupModel group) {
        if (OptimalPlan.isSettled(group)) {
            return group.owner;
        }
        int[] owner = OptimalPlan.of(group, new WorkBudget(MAX_STEPS, maxMillis));
        for (int partition = 0; partition < owner.length; partition++) {
            if (owner[partition] == GroupModel.NONE || !group.isSubscribed(partition, owner[partition])) {
                throw new IllegalStateException("partition " + partition + " has no subscriber as its owner");
            }
        }
        return owner;
    }

    /** Returns an assignment; a member whose partitions are those of before gets the same object again. */
    private static GroupAssignment assignment(GroupSpec spec, GroupModel group, int[] owner) {
        int members = group.members.length;
        boolean[] changed = group.hasMore.clone();
        for (int partition = 0; partition < owner.length; partition++) {
            int before = group.owner[partition];
            if (owner[partition] != before) {
                changed[owner[partition]] = true;
                if (before != GroupModel.NONE) {
                    changed[before] = true;
                }
            }
        }
        List<Map<Uuid, Set<Integer>>> partitions = new ArrayList<>(members);
        Map<String, MemberAssignment> assignments = new HashMap<>(2 * members);
        for (int member = 0; member < members; member++) {
            Map<Uuid, Set<Integer>> mine = changed[member] ? new HashMap<>() : null;
            partitions.add(mine);
            assignments.put(
                    group.members[member],
                    new Partitions(mine == null ? spec.memberAssignment(group.members[member]).partitions() : mine));
        }
        int[] lastTopic = new int[members];
        Arrays.fill(lastTopic, GroupModel.NONE);
        List<Set<Integer>> last = new ArrayList<>(Collections.nCopies(members, null));
        for (int topic = 0; topic < group.topics.length; topic++) {
            int first = group.firstPartition[topic];
            for (int partition = first; partition < group.firstPartition[topic + 1]; partition++) {
                int member = owner[partition];
                if (!changed[member]) {
                    continue;
                }
                if (lastTopic[member] != topic) {
                    lastTopic[member] = topic;
                    last.set(member, new HashSet<>());
                    partitions.get(member).put(group.topics[topic], last.get(member));
                }
                last.get(member).add(partition - first);
            }
        }
        return new GroupAssignment(assignments);
    }

    /** Returns what members have, if not even their subscriptions can be read. */
    private static GroupAssignment kept(GroupSpec spec) {
        Map<String, MemberAssignment> assignments = new HashMap<>();
        try {
            spec.memberIds().forEach(member -> assignments.put(member, new Partitions(assigned(spec, member))));
        } catch (Throwable error) { // NOPMD - members would end for good
            LOG.debug("no members", error);
        }
        return new GroupAssignment(assignments);
    }

    private static Map<Uuid, Set<Integer>> assigned(GroupSpec spec, String member) {
        try {
            Map<Uuid, Set<Integer>> partitions = spec.memberAssignment(member).partitions();
            return partitions == null ? Map.of() : partitions;
        } catch (RuntimeException error) {
            LOG.debug("no assignment of {}", member, error);
            return Map.of();
        }
    }

    private void warn(String text, GroupModel group, Throwable error) {
        long now = System.nanoTime();
        long before = warned.get();
        if (now - before < WARN_EVERY_NANOS || !warned.compareAndSet(before, now)) {
            return;
        }
        try {
            Object members = group == null ? "?" : group.members.length;
            Object partitions = group == null ? "?" : group.partitions();
            if (error instanceof WorkBudget.ExhaustedException) {
                LOG.warn(text, members, partitions, error.getMessage());
            } else {
                LOG.warn(text, members, partitions, error.toString(), error);
            }
        } catch (Throwable inLogging) { // NOPMD - members would end for the sake of a line
            return;
        }
    }

    /** The partitions of a member; Kafka's own class is internal, and another one in each version. */
    private record Partitions(Map<Uuid, Set<Integer>> partitions) implements MemberAssignment {}
}
