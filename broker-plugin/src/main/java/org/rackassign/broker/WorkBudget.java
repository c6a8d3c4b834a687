package org.rackassign.broker;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.TimeUnit;

/**
 * The work that one assignment may take: steps first, and time behind them.
 *
 * <p>Steps are what the algorithms count, so that the same group gets the same answer on each machine. The time is for a
 * broker that is slower than any that was measured: {@code assign()} runs on the coordinator's thread, and heartbeats of
 * other groups wait for it. It is that of the thread on a processor. By the clock, a pause of the machine would end a
 * plan that needs a millisecond, and the group would be as bad until its next change.
 */
final class WorkBudget {
    /** Thrown by {@link #spend} once nothing is left. It carries no trace, as it is expected. */
    static final class ExhaustedException extends RuntimeException {
        private static final long serialVersionUID = 1L;

        ExhaustedException(String reason) {
            super(reason, null, false, false);
        }
    }

    private static final int STEPS_BETWEEN_LOOKS = 1 << 14;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    /** Where a JVM does not measure it, steps alone are the limit. */
    private static final boolean IS_MEASURED = THREADS.isCurrentThreadCpuTimeSupported();

    private final long maxSteps;
    private final long maxMillis;
    private final long endNanos;
    private long steps;
    private long nextLook = STEPS_BETWEEN_LOOKS;

    /**
     * @param maxSteps the number of steps
     * @param maxMillis milliseconds of a processor from now on, on the thread that calls
     */
    WorkBudget(long maxSteps, long maxMillis) {
        this.maxSteps = maxSteps;
        this.maxMillis = maxMillis;
        this.endNanos = cpuNanos() + TimeUnit.MILLISECONDS.toNanos(maxMillis);
    }

    /** Counts steps that are about to be done. */
    void spend(int count) {
        steps += count;
        if (steps < nextLook) {
            return;
        }
        nextLook = steps + STEPS_BETWEEN_LOOKS;
        if (steps > maxSteps) {
            throw new ExhaustedException("more than " + maxSteps + " steps");
        }
        if (cpuNanos() - endNanos > 0) {
            throw new ExhaustedException("more than " + maxMillis + " ms of a processor");
        }
    }

    private static long cpuNanos() {
        return IS_MEASURED ? THREADS.getCurrentThreadCpuTime() : 0;
    }

    long steps() {
        return steps;
    }
}
