"""What tests/page checks of an operator's acts: the token, plans that are previewed and run, those that are refused."""

import json
import time
import urllib.error
import urllib.request

from browser import until

TOKEN = "tests-page-0123456789abcdef0123456789abcdef"
MARKUP = "<img src=x onerror=alert(1)>"

CLICK = """
const seen = (e) => e.offsetParent && !e.disabled && e.textContent.trim() === arguments[1];
const found = [...document.querySelectorAll(arguments[0])].find(seen); if (found) found.click(); return !!found;
"""
FILL = """
for (const [name, value] of Object.entries(arguments[0])) document.querySelector(`#operate [name=${name}]`).value = value;
"""
DIALOG = "const d = document.querySelector('#operate'); return d.open ? d.innerText : ''"
# Buttons of the dialog must be within it, and nothing in it may be cut at its sides.
WITHIN = """
const d = document.querySelector("#operate"), box = d.getBoundingClientRect(), found = [];
if (box.left < 0 || box.right > innerWidth || box.top < 0 || box.bottom > innerHeight) found.push(`the dialog is at ${box.left} to ${box.right}, ${box.top} to ${box.bottom}`);
if (d.scrollWidth > d.clientWidth) found.push(`the dialog is ${d.scrollWidth} wide in ${d.clientWidth}`);
const buttons = [...d.querySelectorAll("button")].map((b) => b.getBoundingClientRect());
buttons.forEach((a, i) => buttons.slice(i + 1).forEach((b) => { if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) found.push("buttons overlap"); }));
return found;
"""


class Operating:
    """One operator at one page."""

    def __init__(self, page, cluster, served, widths):
        self.page, self.browser, self.cluster, self.served, self.widths = page, page.browser, cluster, served, widths

    def says(self):
        return self.browser.run(DIALOG)

    def click(self, text, within="#operate button"):
        until(f"there is a button {text}", lambda: self.browser.run(CLICK, within, text))

    def wait(self, *parts, patience=30):
        """Until the dialog says all of it."""
        until(f"the dialog says {parts}", lambda: all(part in self.says() for part in parts), patience)
        return self.says()

    def shots(self, name):
        """The dialog at both widths: whole, and nothing over anything else."""
        for width, height in self.widths:
            self.browser.size(width, height, phone=width < 500)
            time.sleep(0.2)  # the layout of the other width
            self.page.check(f"{name}-{width}")
            wrong = self.browser.run(WITHIN)
            assert not wrong, f"{name}-{width}: {wrong}"
        self.browser.size(*self.widths[0])

    def form(self, values):
        self.browser.run(FILL, values)
        self.click("Preview")

    def run(self, *result):
        """Runs what is previewed, and leaves the dialog."""
        self.click("Run")
        told = self.wait("Done in", *result)
        return told

    def close(self, button="Close"):
        self.click(button)
        until("the dialog is closed", lambda: self.says() == "")

    def ask(self, path, headers, body=None):
        """Status and error of a request as a program sends it."""
        url = f"http://127.0.0.1:{self.cluster.http + self.served - 1}/api/v1/{path}"
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    # ---- what is checked

    def identify(self):
        """Without the token there is nothing to press, and a wrong one opens nothing."""
        visible = "return [...document.querySelectorAll('.op')].filter((e) => e.offsetParent).length"
        self.page.go("#/topics")
        until("the view is drawn", self.page.is_drawn)
        assert self.browser.run(visible) == 0, "there are buttons without a token"
        self.click("Operator", "header button")
        self.wait("Operator", "token")
        self.shots("operate-token")
        self.browser.run(FILL, {"token": "wrong-0123456789abcdef0123456789"})
        self.click("Use")
        self.wait("This is not the operator's token.")
        self.browser.run(FILL, {"token": TOKEN})
        self.click("Use")
        until("the page operates", lambda: self.browser.run(visible) > 0)
        for width in (800, 1024, 1180):
            self.browser.size(width, 800)
            time.sleep(0.2)  # the layout of the other width
            self.page.check(f"operate-header-{width}")
        self.browser.size(*self.widths[0])
        kept = self.browser.run("return [location.href, document.cookie, JSON.stringify(localStorage), Object.values(sessionStorage)]")
        assert TOKEN not in "".join(kept[:3]) and kept[3] == [TOKEN], kept

    def refusals(self):
        """What programs and other pages get without the token."""
        json_only = {"content-type": "application/json"}
        wanted = {"action": "elect_preferred"}
        status, told = self.ask("plans", json_only, wanted)
        assert (status, told["error"]["code"]) == (401, "unauthorized"), told
        right = {**json_only, "authorization": f"Bearer {TOKEN}"}
        status, told = self.ask("plans", {**right, "origin": "http://evil.example"}, wanted)
        assert status == 403, told
        status, told = self.ask("plans", {**right, "host": "evil.example"}, wanted)
        assert status == 421, told
        status, told = self.ask("plans/0123456789abcdef0123456789abcdef/run", right, {})
        assert status == 404, told
        assert TOKEN not in json.dumps(self.ask("configs", {})[1])

    def create_topic(self):
        self.page.go("#/topics")
        self.click("Create a topic", "main button")
        self.form({"topic": MARKUP})
        self.wait("It was refused")
        assert self.browser.run("return document.querySelectorAll('img').length") == 0, "the name became markup"
        self.click("Change")
        self.wait("Create a topic")
        kept = self.browser.run("return document.querySelector('#operate [name=topic]').value")
        assert kept == MARKUP, "what was filled in is there again, as text"
        self.browser.run(FILL, {"topic": ""})
        self.shots("operate-create")
        self.browser.run(FILL, {"topic": "payments", "partitions": "3", "configs": "min.insync.replicas"})
        self.click("Preview")
        self.wait("is no key=value.")
        self.form({"configs": "min.insync.replicas=3"})
        told = self.wait("Topic payments is created with 3 partitions, 3 replicas each", "min.insync.replicas equals",
                         "barnabas topic create payments --partitions 3 --replication-factor 3 --config")
        assert "payments" not in self.cluster.run("topic", "list", "--json"), "a preview has made it"
        self.shots("operate-preview")
        self.run("topic payments is there")
        self.shots("operate-done")
        self.close()
        until("the view shows it", lambda: "payments" in self.browser.run("return document.querySelector('main').innerText"))
        described = json.loads(self.cluster.run("topic", "describe", "payments", "--json"))[0]
        assert len(described["partitions"]) == 3 and described["configs"]["min.insync.replicas"] in ("3", 3), described
        return told

    def drain(self, broker):
        leads = lambda: next(b for b in self.cluster.get(self.served, "/api/v1/brokers")["brokers"] if b["id"] == broker)
        before = leads()["leaders"]
        assert before > 0, "it leads nothing"
        self.page.go(f"#/brokers?panel=broker/{broker}")
        self.click("Drain", "#panel button")
        told = self.wait(f"Broker {broker} is marked as draining", f"instead of broker {broker}.", f"barnabas broker drain {broker}")
        # All replicas of these are needed: it cannot leave them.
        assert "payments-0 stays on it: of 3 replicas min.insync.replicas asks for 3" in told, told
        moves = int(self.browser.run("return document.querySelector('#operate .kv dd').textContent"))
        self.shots("operate-drain")
        self.run(f"broker {broker} is")
        assert moves > 0
        until("what was said to move has moved", lambda: leads()["leaders"] == before - moves, 30, 0.2)
        self.wait("partitions do without it")
        self.shots("operate-drained")
        self.close()
        assert leads()["state"] == "draining", leads()
        self.click("Undrain", "#panel button")
        self.wait(f"Broker {broker} is no longer marked as draining")
        self.run("takes part again")
        self.close()
        until("the panel knows", lambda: self.browser.run("return !![...document.querySelectorAll('#panel button')].find((b) => b.textContent === 'Drain')"))
        # What it lacks it gets back soon.
        until("all is in sync again",
              lambda: self.cluster.get(self.served, "/api/v1/cluster")["counts"]["under_replicated_partitions"] == 0, 60, 0.3)

    def conflict(self):
        """Somebody else does it while the preview is open."""
        self.page.go("#/brokers")
        self.click("Elect preferred leaders", "main button")
        self.wait("leads", "barnabas leader elect")
        self.cluster.run("leader", "elect")
        until("this broker knows", lambda: self.cluster.get(self.served, "/api/v1/cluster")["counts"]["leaders_not_preferred"] == 0)
        self.click("Run")
        self.wait("It was not run: the cluster is not as the plan says any more", "partition epoch")
        self.shots("operate-conflict")
        self.click("Preview again")
        self.wait("The preferred replicas lead already.")
        self.close()

    def move(self, topic, partition):
        find = lambda: self.cluster.get(self.served, f"/api/v1/partitions/{topic}/{partition}")
        before = find()["assigned_replicas"]
        spare = next(n for n in (1, 2, 3) if n not in before)
        wanted = [before[0], spare]
        self.page.go(f"#/partitions?panel=partition/{topic}/{partition}")
        self.click("Move replicas", "#panel button")
        self.wait("preferred leader first")
        self.form({"replicas": ", ".join(map(str, wanted)), "limit": "50"})
        self.wait(f"broker {spare} copies it", "Copied between brokers", f"--assignment '{partition}:{wanted[0]},{spare}'", "--throttle 50000000")
        self.shots("operate-move")
        self.run("is on its way")
        self.wait("1 of 1 partitions have moved", patience=60)
        self.close()
        assert find()["assigned_replicas"] == wanted, find()

    def setting(self):
        self.page.go("#/configs")
        until("the view is drawn", self.page.is_drawn)
        self.click("Change a setting", "main button")
        self.form({"scope": "topic:payments", "key": "min.insync.replicas", "value": "2"})
        self.wait("min.insync.replicas of topic payments becomes 2, which is 3 there.", "barnabas topic alter payments")
        self.run("the settings of topic payments are stored")
        self.close()

    def forget(self):
        self.click("Operating", "header button")
        self.click("Forget the token")
        until("nothing can be pressed any more",
              lambda: self.browser.run("return [...document.querySelectorAll('.op')].every((e) => !e.offsetParent)"))
        assert self.browser.run("return sessionStorage.length") == 0
        assert TOKEN not in open(self.cluster.log.name).read(), "the token is in the brokers' log"
        status, metrics = self.raw("/metrics")
        assert status == 200 and TOKEN not in metrics

    def raw(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.cluster.http + self.served - 1}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()

    def all(self, drained):
        self.identify()
        self.refusals()
        print("  a topic is created")
        self.create_topic()
        print(f"  broker {drained} is drained and undrained")
        self.drain(drained)
        print("  a plan that others were ahead of is refused")
        self.conflict()
        print("  a replica moves")
        self.move("audit", 0)
        print("  a setting is changed")
        self.setting()
        self.forget()
        # What the browser itself notes of answers that are refusals on purpose.
        self.page.quiet("status of 400", "status of 401", "status of 404", "status of 409")
