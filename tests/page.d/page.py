"""What tests/page checks, step by step. usage: page.py BARNABAS DIRECTORY-FOR-PICTURES"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from browser import Browser, free_ports, until
from operate import TOKEN, Operating

VIEWS = ["cluster", "topics", "partitions", "brokers", "groups", "failovers", "ledger", "configs"]
WIDTHS = [(1280, 900), (390, 844)]
# Group ids may be anything: this one must stay text.
GROUP = "<img src=x onerror=alert(1)>"
# The page may not be larger than this (design: 4,000 nodes).
NODES_MAX = 4_000

# What sticks out beyond the right edge and cannot be scrolled to inside its own box.
BEYOND = """
const wide = innerWidth, found = [];
if (document.documentElement.scrollWidth > wide) found.push(`the document is ${document.documentElement.scrollWidth} wide`);
for (const e of document.querySelectorAll("body *")) {
  const box = e.getBoundingClientRect();
  if (!box.width || !box.height || box.right <= wide + 0.5 || e.closest(".vh, .scroll, .skip, .vt")) continue;
  found.push(`${e.tagName}.${e.className}: ${Math.round(box.right)} "${(e.textContent || "").slice(0, 40)}"`);
}
const last = document.querySelector("nav li:last-child a").getBoundingClientRect(), conn = document.querySelector(".conn").getBoundingClientRect();
if (last.top < conn.bottom && conn.top < last.bottom && last.right > conn.left) found.push(`the views reach to ${last.right}, over what begins at ${conn.left}`);
return found.slice(0, 5);
"""
NAMELESS = """
return [...document.querySelectorAll("button, a, input, select")].filter((e) => e.offsetParent &&
  !(e.textContent.trim() || e.getAttribute("aria-label") || e.title || e.labels?.length)).map((e) => e.outerHTML.slice(0, 120));
"""
VERDICT = "return document.querySelector('#verdict p')?.textContent || ''"
TIMELINE = """
const tl = document.querySelector("main .tl:not(.compact)"); if (!tl) return null;
const text = (e, q) => e.querySelector(q)?.textContent ?? "";
return { what: text(tl, "h2"), id: text(tl, "header .end"), bracket: text(tl, ".bracket"), outage: text(tl, ".stages .sum dd"),
  lanes: [...tl.querySelectorAll("ol > li")].map((l) => [text(l, ".lab"), text(l, ".took")]) };
"""


class Cluster:
    """Three brokers and ZooKeeper, on ports of their own."""

    def __init__(self, barnabas):
        self.barnabas = barnabas
        self.directory = tempfile.mkdtemp(prefix="barnabas-page-cluster-")
        first = free_ports(12)
        self.kafka, self.admin, self.http, zookeeper = first, first + 3, first + 6, first + 9
        self.log = open(os.path.join(self.directory, "dev.out"), "w")
        self.started = {}
        token = os.path.join(self.directory, "operator.token")
        with open(os.open(token, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(TOKEN + "\n")
        self.dev = subprocess.Popen(
            [barnabas, "dev", "--data", self.directory, "--kafka-port", str(self.kafka), "--admin-port", str(self.admin),
             "--http-port", str(self.http), "--zookeeper-port", str(zookeeper),
             "--config", "offsets.topic.num.partitions=4", "--config", "group.initial.rebalance.delay.ms=0",
             "--config", f"http.operator.token.file={token}"],
            stdout=self.log, stderr=subprocess.STDOUT)
        until("three brokers are ready", lambda: all(self.is_ready(n) for n in (1, 2, 3)), 90, 0.2)

    def is_ready(self, broker):
        try:
            return self.get(broker, "/health/ready")["status"] == "ready"
        except OSError:
            return False

    def get(self, broker, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http + broker - 1}{path}", timeout=10) as answer:
            return json.load(answer)

    def run(self, *args):
        done = subprocess.run([self.barnabas, *args, "--admin", f"127.0.0.1:{self.admin}"], capture_output=True, text=True)
        assert done.returncode == 0, f"{args}: {done.stderr}"
        return done.stdout

    def kill(self, broker, how=signal.SIGKILL):
        with open(os.path.join(self.directory, f"broker-{broker}.pid")) as file:
            os.kill(int(file.read()), how)

    def start(self, broker):
        config = os.path.join(self.directory, f"broker-{broker}.yaml")
        child = subprocess.Popen([self.barnabas, "broker", "--config", config], stdout=self.log, stderr=subprocess.STDOUT)
        self.started[broker] = child
        with open(os.path.join(self.directory, f"broker-{broker}.pid"), "w") as file:
            file.write(f"{child.pid}\n")

    def stop(self):
        self.dev.terminate()
        self.dev.wait(60)
        for child in self.started.values():
            child.wait(30)


class Producer(threading.Thread):
    """A record each few milliseconds, at acks=all, to all partitions."""

    def __init__(self, bootstrap, topic):
        super().__init__(daemon=True)
        self.kcat = subprocess.Popen(
            ["kcat", "-P", "-b", bootstrap, "-t", topic, "-X", "acks=all", "-X", "linger.ms=0", "-X", "partitioner=random",
             "-X", "sticky.partitioning.linger.ms=0"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, bufsize=0)
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.004):
            try:
                self.kcat.stdin.write(b"x" * 200 + b"\n")
            except OSError:
                return

    def stop(self):
        self.over.set()
        self.join()
        self.kcat.kill()
        self.kcat.wait()


def consume_once(bootstrap, topic):
    """Lets a group with a hostile name commit something."""
    consumer = subprocess.Popen(["kcat", "-b", bootstrap, "-G", GROUP, topic, "-X", "auto.offset.reset=earliest",
                                 "-X", "auto.commit.interval.ms=100"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return consumer


class Page:
    def __init__(self, browser, shots):
        self.browser, self.shots = browser, shots

    def verdict(self):
        return self.browser.run(VERDICT)

    def go(self, address):
        self.browser.run("location.hash = arguments[0]", address)

    def check(self, name, shot=True):
        """Nothing beyond the edge, no nameless control, no complaint."""
        beyond, nameless = self.browser.run(BEYOND), self.browser.run(NAMELESS)
        nodes = self.browser.run("return document.querySelectorAll('*').length")
        if shot:
            self.browser.shot(os.path.join(self.shots, f"{name}.png"))
        assert not beyond, f"{name}: beyond the right edge: {beyond}"
        assert not nameless, f"{name}: controls without a name: {nameless}"
        assert nodes < NODES_MAX, f"{name}: {nodes} nodes"

    def is_drawn(self):
        return self.browser.run("return !!document.querySelector('main h1') && !document.querySelector('main .note[role]')")

    def views(self, prefix):
        for width, height in WIDTHS:
            self.browser.size(width, height, phone=width < 500)
            for view in VIEWS:
                self.go(f"#/{view}")
                until(f"{view} is drawn", self.is_drawn)
                time.sleep(0.4)  # the lists that are fetched after the view
                self.check(f"{prefix}-{view}-{width}")

    def quiet(self, *expected):
        """No complaint but those that are expected: a broker that is killed refuses connections."""
        bad = [line for line in self.browser.complaints() if not any(part in line for part in expected)]
        assert not bad, f"the console says: {bad[:5]}"


def milliseconds(text):
    """Of what the page says: 9.3 ms, 212 ms, 1.8 s."""
    number, unit = text.replace(",", "").split(" ")[:2]
    return float(number) * {"ms": 1, "s": 1000}[unit]


def main(barnabas, shots):
    cluster = Cluster(barnabas)
    browser = producer = consumer = None
    try:
        cluster.run("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3",
                    "--config", "min.insync.replicas=2")
        cluster.run("topic", "create", "audit", "--partitions", "3", "--replication-factor", "2", "--config", "flush.mode=sync")
        bootstrap = ",".join(f"127.0.0.1:{cluster.kafka + n}" for n in range(3))
        producer = Producer(bootstrap, "orders")
        consumer = consume_once(bootstrap, "orders")
        controller = cluster.get(1, "/api/v1/cluster")["controller"]["id"]
        served, killed = [n for n in (1, 2, 3) if n != controller]
        browser = Browser()
        page = Page(browser, shots)
        browser.size(*WIDTHS[0])
        browser.open(f"http://127.0.0.1:{cluster.http + served - 1}/")
        until("all is well", lambda: page.verdict().startswith("All is well"), 60)
        until("the group has committed", lambda: GROUP in json.dumps(cluster.get(served, "/api/v1/groups")), 60, 0.3)

        subprocess.run(["kcat", "-P", "-b", bootstrap, "-t", "audit", "-X", "acks=all", "-X", "partitioner=random", "-X",
                        "sticky.partitioning.linger.ms=0", "-X", "batch.num.messages=1"], input=b"x\n" * 30, check=True)
        known(cluster, served)
        print("healthy: every view")
        page.views("healthy")
        browser.size(*WIDTHS[0])
        page.go("#/groups")
        until("the group's name is text", lambda: GROUP in browser.run("return document.querySelector('main').textContent"))
        assert browser.run("return document.querySelectorAll('img').length") == 0
        page.quiet()

        print(f"an operator acts through the page of broker {served}")
        browser.size(*WIDTHS[0])
        Operating(page, cluster, served, WIDTHS).all(killed)

        print(f"broker {killed} is killed while the page of broker {served} is open")
        page.go("#/failovers")
        until("the view is drawn", page.is_drawn)
        before = time.time()
        cluster.kill(killed)
        tl = until("the failover is on the page, with its first ack", lambda: finished(browser, killed), 60)
        print(f"  on the page {time.time() - before:.2f} s after the kill: {tl['bracket']}")
        for label, took in tl["lanes"]:
            print(f"  {label:24} {took}")
        names = [label for label, _ in tl["lanes"]]
        for name in ("Suspected", "Confirmed", "Leaders elected", "ZooKeeper written", "First append", "First ack"):
            assert name in names, names
        outage = milliseconds(tl["outage"])
        failover = cluster.get(served, "/api/v1/failovers/" + tl["id"].removeprefix("Failover "))
        steps = sum(p["end_ms"] - p["start_ms"] for p in failover["phases"] if p["critical"])
        assert abs(steps - outage) <= max(2, outage / 50), (steps, outage)
        assert outage < 5_000, outage
        until("the page says that something is wrong", lambda: "more problem" in page.verdict() or "down" in page.verdict())
        page.views("killed")

        for width, height in WIDTHS:
            browser.size(width, height, phone=width < 500)
            for target in (f"broker/{killed}", "partition/orders/0", "cluster/"):
                page.go(f"#/cluster?panel={target}")
                ready = "return document.querySelectorAll('#panel section').length"
                until(f"the panel of {target} is drawn", lambda: browser.run(ready) > 1)
                page.check(f"panel-{target.strip('/').replace('/', '-')}-{width}")
                page.go("#/cluster")
        browser.size(1280, 900, dark=True)
        page.go("#/failovers")
        until("the view is drawn", page.is_drawn)
        page.check("dark-failovers-1280")
        page.quiet()

        print(f"broker {killed} comes back")
        cluster.start(killed)
        until("all is well again", lambda: page.verdict().startswith("All is well"), 90)
        page.go("#/partitions?panel=partition/orders/0")
        until("the history tells of its return",
              lambda: "has caught up" in browser.run("return document.querySelector('#panel').textContent"))
        browser.size(*WIDTHS[0])
        page.check("healed-partition-1280")
        page.quiet()

        print(f"broker {served}, whose page is open, is killed")
        page.go("#/cluster")
        cluster.kill(served)
        until("the page says so", lambda: page.verdict().startswith(f"No word from broker {served}."), 30)
        until("it names another one", lambda: browser.run("return document.querySelector('#verdict a')?.href || ''"))
        other = browser.run("return document.querySelector('#verdict a').href")
        page.check("disconnected-1280")
        cluster.start(served)
        until("the page is live again by itself", lambda: not page.verdict().startswith("No word"), 60)
        page.quiet("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "503",
                   "ERR_EMPTY_RESPONSE")
        browser.open(other)
        until("the other broker serves the page", lambda: page.verdict() != "")
        page.quiet()
        print(f"all is as it should be; the pictures are in {shots}")
    except BaseException:
        if browser:
            browser.shot(os.path.join(shots, "failed.png"))
            print("the page said:", browser.run("return document.body.innerText.slice(0, 1500)"), file=sys.stderr)
            print("the console said:", browser.complaints()[:10], file=sys.stderr)
        raise
    finally:
        for thing in (producer, consumer, browser, cluster):
            if thing is not None:
                {Producer: lambda: producer.stop(), Browser: lambda: browser.close(), Cluster: lambda: cluster.stop(),
                 subprocess.Popen: lambda: (consumer.kill(), consumer.wait())}[type(thing)]()


def known(cluster, served):
    """What brokers know of themselves is on the page: nothing of it stays unknown on a cluster under load."""
    def missing():
        told = cluster.get(served, "/api/v1/cluster")
        brokers = cluster.get(served, "/api/v1/brokers")["brokers"]
        topic = next(t for t in cluster.get(served, "/api/v1/topics")["topics"] if t["name"] == "orders")
        group = next((g for g in cluster.get(served, "/api/v1/groups")["groups"] if g["name"] == GROUP), {"lag_ms": None})
        found = {"zookeeper": told["zookeeper"]["round_trip_ms_p99"], "topic": topic["bytes_in_per_s"] or None, "group": group["lag_ms"],
                 **{f"flush {b['id']}": b["flush_ms_p99"] for b in brokers}}
        return [name for name, value in found.items() if value is None]
    try:
        until("all of it is known", lambda: not missing(), 30, 0.5)
    except AssertionError as late:
        raise AssertionError(f"still unknown: {missing()}") from late


def finished(browser, killed):
    """The timeline of the broker's failover, once clients are served again."""
    tl = browser.run(TIMELINE)
    if tl and tl["what"] == f"Broker {killed} died." and any(l == "First ack" and t not in ("", "–") for l, t in tl["lanes"]):
        return tl
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
