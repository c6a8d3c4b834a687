package org.rackassign.broker;

/**
 * The same under the name of Kafka's {@code uniform}, in whose place brokers list it.
 *
 * <p>It plans for members that request {@code uniform} and for those that request nothing. If their coordinator moves to
 * a broker that does not list it, Kafka's own of that name goes on. A property could give {@link RackAwareAssignor} this
 * name as well, but brokers show values of no properties but
 * Kafka's, so that it would not be seen which of both plans.
 */
public final class UniformRackAwareAssignor extends RackAwareAssignor {
    /** The name, which Kafka 4.0 to 4.4 allow any class to take (KAFKA-20843). */
    public static final String NAME = "uniform";

    @Override
    public String name() {
        return NAME;
    }
}
