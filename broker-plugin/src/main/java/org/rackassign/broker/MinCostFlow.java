package org.rackassign.broker;

import java.util.Arrays;

/**
 * Minimum-cost flow from a source to a sink, with integer costs that are not negative.
 *
 * <p>The primal-dual method: Dijkstra's algorithm finds the distance of the sink with reduced costs, and a blocking flow
 * uses all paths of that length at once. The networks here have few different distances, whatever the number of
 * partitions. Into the sink costs are convex: each further unit of a member costs at least what the last one did.
 *
 * <p>At the end no residual cycle has a negative cost, which is the certificate that tests check ({@link #isOptimal}).
 * See Ahuja, Magnanti and Orlin, <i>Network Flows</i>, chapters 9 and 14.
 */
final class MinCostFlow {
    static final int SOURCE = 0;
    static final int SINK = 1;

    /** Arcs of the longest path that is looked at; twice as many still fit on the stack of a thread of a broker. */
    static final int MAX_DEPTH = 3000;

    private final int nodes;
    private final WorkBudget budget;
    private int arcs;
    private int[] from = new int[64];
    private int[] to = new int[64];
    private int[] left = new int[64];
    private long[] cost = new long[64];

    /** Units into the sink that cost nothing, the cost of the first one behind them, and the units so far, by node. */
    private final int[] free;
    private final boolean[] ends;
    private final long unitCost;
    private final int[] load;

    private int[] firstArc;
    private int[] order;
    private final long[] potential;
    private final long[] distance;
    private final int[] level;
    private final int[] cursor;

    /**
     * @param nodes the number of nodes, source and sink included
     * @param unitCost what the first unit behind the free ones costs; the n-th one costs n times as much
     * @param budget the work that may be done
     */
    MinCostFlow(int nodes, long unitCost, WorkBudget budget) {
        this.nodes = nodes;
        this.unitCost = unitCost;
        this.budget = budget;
        free = new int[nodes];
        ends = new boolean[nodes];
        load = new int[nodes];
        potential = new long[nodes];
        distance = new long[nodes];
        level = new int[nodes];
        cursor = new int[nodes];
    }

    /** Adds an arc, and returns its number. */
    int arc(int tail, int head, int capacity, long arcCost) {
        if (arcs + 2 > to.length) {
            int size = 2 * to.length;
            from = Arrays.copyOf(from, size);
            to = Arrays.copyOf(to, size);
            left = Arrays.copyOf(left, size);
            cost = Arrays.copyOf(cost, size);
        }
        set(arcs, tail, head, capacity, arcCost);
        set(arcs + 1, head, tail, 0, -arcCost);
        arcs += 2;
        return arcs - 2;
    }

    private void set(int number, int tail, int head, int capacity, long arcCost) {
        from[number] = tail;
        to[number] = head;
        left[number] = capacity;
        cost[number] = arcCost;
    }

    /** Lets a node send units to the sink, of which so many cost nothing. */
    void end(int node, int freeUnits) {
        ends[node] = true;
        free[node] = freeUnits;
    }

    /** Returns the flow of an arc. */
    int flow(int number) {
        return left[number ^ 1];
    }

    /** Sends as much as the source can, at the least cost; returns how much that is. */
    int solve() {
        index();
        int sent = 0;
        while (findDistances()) {
            int more;
            do {
                more = findLevels() ? push(SOURCE, Integer.MAX_VALUE) : 0;
                sent += more;
            } while (more > 0);
        }
        return sent;
    }

    private void index() {
        firstArc = new int[nodes + 1];
        order = new int[arcs];
        for (int number = 0; number < arcs; number++) {
            firstArc[from[number] + 1]++;
        }
        for (int node = 0; node < nodes; node++) {
            firstArc[node + 1] += firstArc[node];
        }
        int[] next = Arrays.copyOf(firstArc, nodes);
        for (int number = 0; number < arcs; number++) {
            order[next[from[number]]++] = number;
        }
    }

    private long costToSink(int node) {
        return load[node] < free[node] ? 0 : (load[node] - free[node] + 1) * unitCost;
    }

    private int roomToSink(int node) {
        return load[node] < free[node] ? free[node] - load[node] : 1;
    }

    /** Finds the least distances, and raises potentials by them; returns whether the sink is reached. */
    private boolean findDistances() {
        Arrays.fill(distance, Long.MAX_VALUE);
        distance[SOURCE] = 0;
        NodeHeap heap = new NodeHeap(nodes, distance);
        heap.push(SOURCE);
        while (!heap.isEmpty()) {
            int node = heap.pop();
            if (node == SINK) {
                break;
            }
            long base = distance[node] + potential[node];
            budget.spend(firstArc[node + 1] - firstArc[node] + 1);
            if (ends[node]) {
                relax(SINK, base + costToSink(node) - potential[SINK], heap);
            }
            for (int at = firstArc[node]; at < firstArc[node + 1]; at++) {
                int number = order[at];
                if (left[number] > 0) {
                    relax(to[number], base + cost[number] - potential[to[number]], heap);
                }
            }
        }
        long most = distance[SINK];
        if (most == Long.MAX_VALUE) {
            return false;
        }
        for (int node = 0; node < nodes; node++) {
            // What is further away than the sink may have a distance that is not final.
            potential[node] += Math.min(distance[node], most);
        }
        return true;
    }

    private void relax(int node, long length, NodeHeap heap) {
        if (length < distance[node]) {
            distance[node] = length;
            heap.push(node);
        }
    }

    private boolean isShortest(int node) {
        return ends[node] && potential[node] + costToSink(node) == potential[SINK];
    }

    private boolean isShortest(int number, int node) {
        return left[number] > 0 && potential[node] + cost[number] == potential[to[number]];
    }

    /** Numbers nodes by their arcs from the source on shortest paths; returns whether the sink is among them. */
    private boolean findLevels() {
        Arrays.fill(level, -1);
        level[SOURCE] = 0;
        System.arraycopy(firstArc, 0, cursor, 0, nodes);
        int[] queue = new int[nodes];
        int tail = 1;
        boolean reached = false;
        for (int head = 0; head < tail; head++) {
            int node = queue[head];
            if (level[node] == MAX_DEPTH) {
                throw new WorkBudget.ExhaustedException("paths of more than " + MAX_DEPTH + " arcs");
            }
            reached |= isShortest(node);
            budget.spend(firstArc[node + 1] - firstArc[node] + 1);
            for (int at = firstArc[node]; at < firstArc[node + 1]; at++) {
                int number = order[at];
                if (level[to[number]] < 0 && isShortest(number, node)) {
                    level[to[number]] = level[node] + 1;
                    queue[tail++] = to[number];
                }
            }
        }
        return reached;
    }

    /** Sends a blocking flow through a node; the depth is that of the network, five arcs and detours, and limited. */
    private int push(int node, int most) {
        int sent = 0;
        if (isShortest(node)) {
            int units = Math.min(most, roomToSink(node));
            load[node] += units;
            sent += units;
        }
        while (sent < most && cursor[node] < firstArc[node + 1]) {
            int number = order[cursor[node]];
            int next = to[number];
            budget.spend(1);
            if (level[next] == level[node] + 1 && isShortest(number, node)) {
                int units = push(next, Math.min(most - sent, left[number]));
                left[number] -= units;
                left[number ^ 1] += units;
                sent += units;
                if (sent == most) {
                    break;
                }
            }
            cursor[node]++;
        }
        return sent;
    }

    /** Returns whether the potentials prove that no other flow of this size costs less. */
    boolean isOptimal() {
        for (int number = 0; number < arcs; number++) {
            if (left[number] > 0 && potential[from[number]] + cost[number] < potential[to[number]]) {
                return false;
            }
        }
        for (int node = 0; node < nodes; node++) {
            boolean cheaper = ends[node] && potential[node] + costToSink(node) < potential[SINK];
            boolean dearer = load[node] > 0 && potential[node] + costOfLast(node) > potential[SINK];
            if (cheaper || dearer) {
                return false;
            }
        }
        return true;
    }

    private long costOfLast(int node) {
        return Math.max(0, load[node] - free[node]) * unitCost;
    }

    /** A binary heap of nodes by distance, with decrease of keys. */
    private static final class NodeHeap {
        private final int[] heap;
        private final int[] position;
        private final long[] key;
        private int size;

        NodeHeap(int nodes, long[] key) {
            heap = new int[nodes];
            position = new int[nodes];
            Arrays.fill(position, -1);
            this.key = key;
        }

        boolean isEmpty() {
            return size == 0;
        }

        /** Adds a node, or moves it up after its distance has become less. */
        void push(int node) {
            int at = position[node] >= 0 ? position[node] : size++;
            while (at > 0 && before(node, heap[(at - 1) / 2])) {
                place(heap[(at - 1) / 2], at);
                at = (at - 1) / 2;
            }
            place(node, at);
        }

        int pop() {
            int top = heap[0];
            position[top] = -1;
            int last = heap[--size];
            if (size > 0) {
                int at = 0;
                while (2 * at + 1 < size) {
                    int child = 2 * at + 1;
                    if (child + 1 < size && before(heap[child + 1], heap[child])) {
                        child++;
                    }
                    if (!before(heap[child], last)) {
                        break;
                    }
                    place(heap[child], at);
                    at = child;
                }
                place(last, at);
            }
            return top;
        }

        private boolean before(int one, int other) {
            return key[one] < key[other];
        }

        private void place(int node, int at) {
            heap[at] = node;
            position[node] = at;
        }
    }
}
