import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/** As meter.py: CPU of the process over segments of records, then the latencies of live records. */
public class Meter {
    private static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static long count, next, segment, last, beforeNanos, beforeCount;
    private static final List<String> costs = new ArrayList<>(), millis = new ArrayList<>();

    /** WARM SEGMENT SEGMENTS. */
    static void start(String warm, String each, String segments) {
        next = Long.parseLong(warm);
        segment = Long.parseLong(each);
        last = next + segment * Long.parseLong(segments);
        beforeCount = -1;
    }

    /** A record; live ones come only after the first line was printed. */
    static synchronized void add(ByteBuffer data) {
        if (count >= last) {
            addLive(data);
            return;
        }
        if (++count < next) {
            return;
        }
        long now = SYSTEM.getProcessCpuTime();
        if (beforeCount >= 0) {
            costs.add(String.format(Locale.ROOT, "%.4f", (now - beforeNanos) / 1e3 / (count - beforeCount)));
        }
        beforeNanos = now;
        beforeCount = count;
        next += segment;
        if (count >= last) {
            System.out.println(costs);
        }
    }

    private static void addLive(ByteBuffer data) {
        long put = data.getLong(data.position());
        if (put == 0) {
            System.out.println(millis);
            System.out.flush();
            return;
        }
        millis.add(String.format(Locale.ROOT, "%.3f", (System.nanoTime() - put) / 1e6));
    }
}
