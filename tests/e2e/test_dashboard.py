"""The dashboard, as a person uses it: in a real browser, on a real gateway. What it loads is looked at without one."""

import json
import re
import shutil
import signal

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import expect
from client import Connection, request
from gateway import PATIENCE, ROOT, Gateway, eventually, route
from partner import Held


FILES = ROOT / "gateway" / "dashboard"
FOREIGN = "gateway.example.com"  # a name that the data calls refuse
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1"]
HOSTILE = [
    "<img src=x onerror=\"window.hit=1;alert(1)\">",
    "'\"><script>window.hit=1;alert(1)</script>",
    "javascript:window.hit=1",
    "k" * 255,
    "\u0639\u0642\u062f-42 \u202eevil",
    "\U0001F6D2 basket \U0001F469\u200D\U0001F469\u200D\U0001F467",
    "e\u0302\u0303\u0304" * 30,
    "tab\u200bzero",
    "a/b?c=d#e%2f&f",
    "..",
]


# -- what is served


def paths():
    return ["/", "/dashboard.css", "/dashboard.js", *(f"/dashboard/{file.name}" for file in FILES.glob("*.js") if file.stem != "dashboard")]


def test_each_file_is_served_closed_to_everything_else(gw):
    total = 0
    for path in paths():
        answer = gw.admin(path, token=None)
        assert answer.status == 200 and answer.complete, (path, answer)
        name = "index.html" if path == "/" else path.rpartition("/")[2]
        assert answer.body == (FILES / name).read_bytes()
        kind = {"html": "text/html", "css": "text/css", "js": "text/javascript"}[name.rpartition(".")[2]]
        assert answer.get("Content-Type") == kind + "; charset=utf-8"
        assert answer.get("Cache-Control") == "no-cache"
        assert answer.get("X-Content-Type-Options") == "nosniff"
        head = gw.admin(path, "HEAD", token=None)
        assert head.status == 200 and head.get("Content-Length") == str(len(answer.body))
        total += len(answer.body) + sum(len(name) + len(value) + 4 for name, value in answer.headers)
    assert total < 100 << 10, total


def test_the_page_may_load_what_is_its_own_and_nobody_may_frame_it(gw):
    answer = gw.admin("/", token=None)
    policy = dict(part.strip().partition(" ")[::2] for part in answer.get("Content-Security-Policy").split(";"))
    assert policy == {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'", "img-src": "data:",
                      "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
    assert answer.get("X-Frame-Options") == "DENY"
    assert answer.get("Referrer-Policy") == "no-referrer"


def test_the_page_loads_under_any_name_and_only_with_get(gw):
    with Connection(gw.admin_port) as connection:
        connection.send(request("GET", "/", host=FOREIGN))
        assert connection.receive("GET").status == 200
    answer = gw.admin("/", "POST", token=None)
    assert answer.status == 405 and answer.get("Allow") == "GET, HEAD"
    for path in ("/dashboard/", "/dashboard/none.js", "/dashboard/index.html", "/index.html", "/dashboard/..%2fapi.js"):
        assert gw.admin(path, token=None).status == 404


def test_the_files_take_no_markup_from_data_and_nothing_from_elsewhere():
    for file in [*FILES.glob("*.js"), *FILES.glob("*.html"), *FILES.glob("*.css")]:
        text = file.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(", "setTimeout(\"", "DOMParser", "@import", "localStorage"):
            assert word not in text, f"{file.name}: {word}"
        for address in re.findall(r"https?://[^\s\"']+", text):
            assert address == "http://www.w3.org/2000/svg", f"{file.name}: {address}"
    page = (FILES / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)


# -- the browser


SHOWN = """
return [...document.querySelectorAll(arguments[0])].filter((node) => node.checkVisibility() && arguments[1].every((text) => node.innerText.includes(text)));
"""


class Page:
    """What a person does with the page. Everything waits for what it needs to see."""

    def __init__(self, driver):
        self.driver = driver
        self.allowed = []  # parts of console messages that a test brings about on purpose

    def until(self, look, what="it"):
        """`look()` until it gives something true; an element that was replaced meanwhile is looked for again."""
        def once():
            try:
                return look()
            except StaleElementReferenceException:
                return None
        return eventually(once, 2 * PATIENCE, what)

    def all(self, selector, *texts):
        """What is shown and has all these texts."""
        return self.driver.execute_script(SHOWN, selector, [text for text in texts if text is not None])

    def see(self, selector, text=None):
        return self.until(lambda: next(iter(self.all(selector, text)), None), f"{selector} with {text!r}")

    def gone(self, selector, text=None):
        self.until(lambda: not self.all(selector, text), f"no {selector} with {text!r}")

    def click(self, selector, text=None):
        def once():
            try:
                self.see(selector, text).click()
                return True
            except WebDriverException as error:  # moved under the pointer by what came in
                if "intercepted" in str(error) or "not interactable" in str(error):
                    return False
                raise
        self.until(once, f"click on {selector} with {text!r}")

    def fill(self, selector, text):
        field = self.see(selector)
        field.clear()
        field.send_keys(text)

    def open(self, gateway, fragment="", host="127.0.0.1"):
        """The page with the token entered, unless this tab has it already."""
        self.driver.get("about:blank")
        self.driver.get(f"http://{host}:{gateway.admin_port}/{fragment}")
        self.until(lambda: self.all("#token") or self.all("#view"), "the page")
        if self.all("#token"):
            self.enter(gateway.admin_token)
        return self

    def enter(self, token):
        self.fill("#token", token)
        self.click("#login button")

    def go(self, fragment):
        self.driver.execute_script("location.hash = arguments[0]", fragment)

    def rows(self, *texts):
        return self.all(".records .row", *texts)

    def fits(self):
        """No sideways scrolling of the page."""
        return self.driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")

    def size(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})

    def scheme(self, name):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def check(self):
        """Nothing went wrong that a person doesn't see: console, policy, script out of data."""
        assert self.driver.execute_script("return window.hit") is None
        for entry in self.driver.get_log("browser"):
            assert entry["level"] not in ("SEVERE", "WARNING") or any(part in entry["message"] for part in self.allowed), entry


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    options = webdriver.ChromeOptions()
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def page(driver):
    page = Page(driver)
    page.size(1280, 800)
    page.scheme("light")
    yield page
    page.check()
    driver.execute_script("sessionStorage.clear()")
    driver.get("about:blank")
    driver.get_log("browser")  # what came after the check is nobody's


@pytest.fixture(scope="module")
def gw(partner, tmp_path_factory):
    """Three effects in doubt (the gateway was killed meanwhile), the story of order-17, and keys made to do harm."""
    gateway = Gateway(tmp_path_factory.mktemp("gw"), [
        route(partner, name="payments"), route(partner, name="shipping", path="/ship"), route(partner, name="hostile", path="/hostile", namespace="hostile"),
        route(partner, name="watched", path="/watched", fence={"mode": "observe"}),
    ]).start()
    held = Held()
    partner.on("refunds", held)
    calls = [gateway.send_off("/pay/v1/refunds", 7, f"refund-{number}") for number in (1, 2, 3)]
    partner.wait_seen("refunds", 3)
    gateway.process.send_signal(signal.SIGKILL)
    gateway.wait()
    Gateway.running.discard(gateway)
    held.release()
    for call in calls:
        assert call.exception(PATIENCE) is not None
    gateway.start()
    for key in HOSTILE:
        expect.relayed(gateway.call("/hostile/v1", 18446744073709551615, key.encode()))
    for token, status in ((41, 200), (42, 200), (41, 412)):
        assert gateway.call("/pay/v1/charges", token, "order-17", body=b"amount=4200").status == status
        gateway.wait_audit(1, key="order-17", kind="sent", limit=1)
    gateway.wait_audit(2, key="order-17", kind="sent")
    yield gateway
    gateway.end()


# -- what a person does


def test_why_was_it_dropped_and_what_did_its_successor_do(page, gw):
    page.open(gw)
    page.see("#state", "Ready")
    page.fill(".filter [name=key]", "order-17")
    page.click(".filter button", "Filter")
    page.until(lambda: len(page.rows("order-17")) == 3 and len(page.rows()) == 3, "the three records of order-17")
    page.rows("dropped", "stale-token", "41 < 42")[0].find_element(By.CSS_SELECTOR, ".more").click()
    assert "Token 41 is below 42, where the fence of this key stood." in page.see(".details .why").text
    fields = page.see(".details .fields").text
    for text in ("/pay/v1/charges", "127.0.0.1:", "412", "stale-token"):
        assert text in fields
    page.click(".details a", "What token 42 did")
    page.see("h3", "What token 42 did")
    page.until(lambda: len(page.rows("sent", "POST /pay/v1/charges", "200")) == 1 and len(page.rows()) == 1, "the call of token 42")
    assert re.search(r"Token 42 took over from 41 at .*; 1 call of token 41 was dropped after that\. Token 42: 1 call sent\.",
                     page.see(".summary").text)
    assert [item.find_element(By.CSS_SELECTOR, ".token").text for item in page.all(".tokens li")] == ["42", "41"]
    assert "holds the fence" in page.all(".tokens li")[0].text and "1 dropped" in page.all(".tokens li")[1].text
    assert len(page.all(".lanes .mark")) == 3
    assert gw.admin_token not in page.driver.current_url


def test_the_filter_is_in_the_url(page, gw):
    page.open(gw)
    Select(page.see(".filter [name=kind]")).select_by_value("dropped")
    page.until(lambda: page.rows() and len(page.rows("dropped")) == len(page.rows()), "dropped records only")
    assert "kind=dropped" in page.driver.current_url
    page.fill(".filter [name=route]", "shipping")
    page.see(".filter [name=route]").send_keys(Keys.ENTER)
    page.see(".empty", "No record matches this filter.")
    page.driver.back()
    page.until(lambda: page.rows("dropped"), "dropped records after going back")
    assert page.see(".filter [name=route]").get_attribute("value") == ""
    page.driver.refresh()
    page.until(lambda: page.rows() and len(page.rows("dropped")) == len(page.rows()), "the same after a reload, without the token again")
    assert page.see(".filter [name=kind]").get_attribute("value") == "dropped"
    page.go("#/?since=nonsense")
    page.see(".problem", "The parameter since must be")
    page.allowed.append("400 (Bad Request)")
    page.click(".filter button", "Clear")
    page.gone(".problem")
    page.until(lambda: len(page.rows()) > 3, "all records")


def test_new_records_come_by_themselves_until_paused(page, gw, mark):
    page.open(gw, f"#/?key={mark}")
    page.see(".empty", "No record matches")
    gw.call(f"/pay/{mark}", 9, mark)
    page.until(lambda: len(page.rows(mark, "sent")) == 1, "the sent record")
    page.rows(mark)[0].find_element(By.CSS_SELECTOR, ".more").click()
    gw.call(f"/pay/{mark}", 8, mark)
    page.until(lambda: len(page.rows(mark, "dropped", "8 < 9")) == 1, "the dropped record")
    assert "dropped" in page.rows()[0].text and page.all(".details"), "newest first, and what was open stays open"
    page.until(lambda: "new dropped call" in page.driver.find_element(By.ID, "announce").get_attribute("textContent"), "told to screen readers")
    page.click("button", "Pause")
    page.see(".state", "paused")
    gw.call(f"/pay/{mark}", 10, mark)
    gw.wait_audit(3, key=mark)
    page.click("button", "Follow")
    page.until(lambda: len(page.rows(mark)) == 3, "the one that came meanwhile")


def test_an_effect_in_doubt_is_resolved(page, gw):
    page.open(gw)
    page.click(".gauge a", "3")
    page.click(".list tr:has([href*='refund-1']) button", "Resolve")
    page.click("dialog button", "Continue")
    page.see("dialog .problem", "Choose an outcome.")
    page.click("dialog label", "It was done")
    page.click("dialog button", "Continue")
    page.see("dialog .problem", "Say how you know")
    page.fill("dialog [name=note]", "receipt 4711 <b>")
    page.click("dialog button", "Continue")
    page.see("dialog .consequences", "will be on record as sent, with the note: receipt 4711 <b>")
    assert gw.audit(kind="resolved") == []
    page.click("dialog button", "Put it on record")
    page.gone("dialog")
    page.gone(".list tr", "refund-1")
    page.see(".list tr", "refund-2")
    expect.record(gw.audit(kind="resolved", key="refund-1")[0], note="receipt 4711 <b>", reason="sent")
    page.go("#/?key=refund-1&kind=unknown")
    page.click(".records .row .more")
    page.see(".details", "Resolved as sent at ")
    page.see(".details", ": receipt 4711 <b>")
    assert not page.all(".details button"), "it is offered once"


def test_who_resolves_second_is_told_what_the_first_found(page, gw):
    page.open(gw, "#/effects")
    page.click(".list tr:has([href*='refund-3']) button", "Resolve")
    page.click("dialog label", "It was done")
    page.fill("dialog [name=note]", "seen in the console")
    page.click("dialog button", "Continue")
    page.see("dialog .consequences", "will be on record as sent")
    effect = gw.audit(kind="unknown", key="refund-3")[0]["effect_id"]
    body = json.dumps({"outcome": "not-sent", "note": "the partner has none"}).encode()
    assert gw.admin(f"/v1/effects/{effect}/resolve", "POST", headers=[("Content-Type", "application/json")], body=body).status == 200
    page.click("dialog button", "Put it on record")
    page.see("dialog .problem", "Resolved as not-sent at ")
    page.see("dialog .problem", "the partner has none")
    assert not page.all("dialog .consequences") and len(page.all("dialog button")) == 1
    page.allowed.append("409 (Conflict)")
    page.click("dialog button", "Close")
    page.gone("dialog")
    page.gone(".list tr", "refund-3")


def test_what_runs_and_what_is_unknown_is_listed(page, gw, partner, mark):
    def cut(exchange):
        exchange.read_body()
        exchange.reset()

    partner.on(f"{mark}cut", cut)
    assert gw.call(f"/ship/{mark}cut", 5, f"{mark}cut").status == 502
    held = Held()
    partner.on(f"{mark}held", held)
    call = gw.send_off(f"/ship/{mark}held", 5, f"{mark}held")
    partner.wait_seen(f"{mark}held")
    page.open(gw, "#/effects")
    page.see("[aria-label=Unknown] tr", f"{mark}cut")
    assert "upstream-failed" in page.all("[aria-label=Unknown] tr", f"{mark}cut")[0].text
    assert not page.all("[aria-label=Unknown] tr", "refund-"), "what is in doubt is listed once"
    assert "127.0.0.1:" in page.see("[aria-label='Under way'] tr", f"{mark}held").text
    page.go(f"#/key/default/{mark}held")
    page.see(".tokens li", "1 in flight")
    assert re.search(r"accepted .* by a call from 127\.0\.0\.1:", page.see(".tokens li").text)
    page.see(".empty", "No record.")
    page.driver.back()
    page.see("[aria-label='Under way'] tr", f"{mark}held")
    held.release()
    expect.relayed(call.result(PATIENCE))
    page.gone("[aria-label='Under way'] tr", f"{mark}held")
    page.click(f"[aria-label=Unknown] tr:has([href*='{mark}cut']) .token")
    page.see(".doubt", "outcome is not known")
    page.see(".doubt button", "Resolve")


def test_a_record_or_an_effect_is_found_by_its_id(page, gw):
    dropped = gw.audit(key="order-17", kind="dropped")[0]
    sent = gw.audit(key="order-17", kind="sent")[0]
    page.open(gw)
    page.fill(".filter [name=id]", f" {dropped['id']} ")
    page.click(".filter button", "Filter")
    page.until(lambda: len(page.rows()) == 1 and page.rows("order-17", "stale-token"), "the drop")
    assert page.driver.current_url.endswith(f"#/?id={dropped['id']}")
    assert page.see(".details .why").text.startswith("Token 41 is below 42"), "the record is open"
    page.fill(".filter [name=id]", sent["effect_id"] + Keys.ENTER)
    page.until(lambda: len(page.rows()) == 1 and page.rows("order-17", "sent"), "the effect's record")
    assert page.driver.current_url.endswith(f"#/?effect_id={sent['effect_id']}")
    page.driver.refresh()
    page.until(lambda: len(page.rows()) == 1 and page.rows("order-17", "sent"), "the same after a reload")
    assert page.see(".filter [name=id]").get_attribute("value") == sent["effect_id"]
    page.go("#/?id=18446744073709551615")
    page.see(".empty", "No record has this id or is about an effect with it.")


STANDS = "return [...document.querySelectorAll('.row')].find((row) => row.dataset.id === arguments[0]).getBoundingClientRect().top"


def test_the_list_stands_still_under_a_reader(page, gw, mark):
    for token in range(1, 41):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    gw.wait_audit(40, key=mark)
    page.open(gw, f"#/?key={mark}")
    page.see(".state", "40 records shown")
    row = page.rows()[20]
    number = row.get_attribute("data-id")
    ActionChains(page.driver).scroll_to_element(page.rows()[30]).move_to_element(row).perform()
    stood = page.driver.execute_script(STANDS, number)
    for _ in range(12):
        gw.call(f"/pay/{mark}", 7, mark)
    page.see(".waiting button", "12 new")
    assert page.driver.execute_script(STANDS, number) == stood and len(page.rows()) == 40
    page.click(".waiting button")
    page.see(".state", "52 records shown")
    page.gone(".waiting button")
    assert "dropped" in page.rows()[0].text and 0 <= page.rows()[0].rect["y"] - page.driver.execute_script("return scrollY") < 800


def test_what_came_meanwhile_is_put_in_at_the_top(page, gw, mark):
    for token in range(1, 41):
        expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    gw.wait_audit(40, key=mark)
    page.open(gw, f"#/?key={mark}")
    page.see(".state", "40 records shown")
    page.driver.execute_script("scrollTo(0, document.body.scrollHeight)")
    gw.call(f"/pay/{mark}", 7, mark)
    page.see(".waiting button", "1 new")
    page.driver.execute_script("scrollTo(0, 0)")
    page.see(".state", "41 records shown")
    assert not page.all(".waiting button")


def test_a_filter_does_not_end_a_pause(page, gw, mark):
    page.open(gw)
    page.click("button", "Pause")
    expect.relayed(gw.call(f"/pay/{mark}", 9, mark))
    page.fill(".filter [name=key]", mark)
    page.click(".filter button", "Filter")
    page.until(lambda: len(page.rows(mark)) == len(page.rows()) == 1, "the filter's records")
    page.see(".state", "paused, 1 record shown")
    expect.relayed(gw.call(f"/pay/{mark}", 10, mark))
    gw.wait_audit(2, key=mark)
    page.click("button", "Follow")
    page.see(".state", "following, 2 records shown")


def test_a_long_key_or_path_takes_no_room_from_other_rows(page, gw, mark):
    heights = "return [...document.querySelectorAll('.row')].map((row) => row.offsetHeight)"
    for token in (5, 4):
        gw.call(f"/pay/{mark}", token, mark)
    gw.wait_audit(2, key=mark)
    since = gw.audit(key=mark)[0]["time"]
    page.open(gw, f"#/?route=payments&since={since}")
    page.until(lambda: len(page.rows()) == 2, "two short rows")
    short = page.driver.execute_script(heights)
    for token in (5, 4):
        gw.call(f"/pay/{mark}-{'p' * 3000}", token, mark + "k" * (255 - len(mark)))
    page.until(lambda: len(page.rows()) == 4, "two rows with long words")
    assert page.driver.execute_script(heights)[2:] == short
    assert page.fits()


def test_the_newest_drops_of_a_key_are_seen_at_once(page, gw, mark):
    for token in range(1, 31):
        for _ in range(3):
            expect.relayed(gw.call(f"/pay/{mark}", token, mark))
    for token in (3, 7):
        assert gw.call(f"/pay/{mark}", token, mark).status == 412
    expect.relayed(gw.call(f"/pay/{mark}", 30, mark))
    gw.wait_audit(93, key=mark)
    page.open(gw, f"#/key/default/{mark}")
    drops = page.until(lambda: page.all(".drops li"), "drops")
    assert ["7 < 30" in drops[0].text, "3 < 30" in drops[1].text] == [True, True] and drops[0].rect["y"] < 800
    right = page.driver.execute_script("const box = document.querySelector('.picture'); return box.scrollLeft + box.clientWidth >= box.scrollWidth - 1")
    assert right, "the newest calls are in the picture's part that is seen"
    page.click(".drops a")
    page.see(".details .why", "Token 7 is below 30")


def test_unresolved_unknowns_are_on_the_front_page(page, gw, partner, mark):
    def cut(exchange):
        exchange.read_body()
        exchange.reset()

    partner.on(mark, cut)
    before = sum(effect["reason"] != "gateway-crash" for effect in gw.admin("/v1/effects?state=unknown&limit=1000").json["effects"])
    for number in range(2):
        assert gw.call(f"/ship/{mark}", 5, f"{mark}{number}").status == 502
    gw.wait_audit(1, key=f"{mark}1", kind="unknown")
    page.open(gw)
    page.until(lambda: "Unresolved unknown" in page.see(".gauge.nearly:has([href*=unknown])").text, "the tile")
    page.see(".gauge [href*=unknown]", str(before + 2))
    page.click(".gauge [href*=unknown]")
    page.see("[aria-label=Unknown] tr", f"{mark}1")
    page.click(f"[aria-label=Unknown] tr:has([href*='{mark}1']) button", "Resolve")
    page.click("dialog label", "It was done")
    page.fill("dialog [name=note]", "seen in the console")
    page.click("dialog button", "Continue")
    page.click("dialog button", "Put it on record")
    page.gone("[aria-label=Unknown] tr", f"{mark}1")
    page.until(lambda: page.all(".gauge [href*=unknown]", str(before + 1)), "one less")


EQUAL = """
const real = window.fetch;
window.fetch = async (url, options) => {
    const answer = await real(url, options);
    if (!url.endsWith("v1/stats")) { return answer; }
    const stats = await answer.json();
    stats.alarms = ["a", "b", "c", "d"].map((route) =>
        ({ name: "token-regression", route, since: stats.started_at, text: `The tokens of 10 keys of ${route} were stale.` }));
    return Response.json(stats);
};
"""


def test_equal_alarms_do_not_fill_a_phone(page, gw):
    page.size(360, 740)
    page.open(gw)
    page.driver.execute_script(EQUAL)
    page.see(".alarms li", "Token regression on a, b, c, d")
    assert len(page.all(".alarms li")) == 1 and page.all(".gauge")[0].rect["y"] < 370
    page.click(".alarms summary")
    for name in "abcd":
        page.see(".alarms p", f"{name}: The tokens of 10 keys of {name} were stale. Stale calls since ")


def test_what_a_route_only_watched_is_told_of_its_token(page, gw, mark):
    for token in (9, 8):
        expect.relayed(gw.call(f"/watched/{mark}", token, mark))
    gw.wait_audit(2, key=mark)
    page.open(gw, f"#/key/default/{mark}")
    assert "1 would have been refused" in page.see(".tokens li:last-child").text
    page.click(".records .row.is-sent .more")
    assert "Token 8 is below 9, where the fence of this key stood. On this route the fence only observes" in page.see(".details .why").text


def test_a_dialog_goes_with_its_view(page, gw):
    page.open(gw, "#/key/default/order-17")
    page.click(".story button", "Reset")
    page.see("dialog")
    page.go("#/key/default/refund-2")
    page.gone("dialog")
    page.see("h2", "refund-2")


def test_a_fence_is_raised_and_reset(page, gw, mark):
    top = 18446744073709551615
    gw.call(f"/pay/{mark}", top - 1, mark)
    page.open(gw, f"#/key/default/{mark}")
    page.see(".facts", f"Fence at {top - 1}")
    page.click(".story button", "Raise")
    page.see("dialog .fence-now", f"The fence now: {top - 1}, 0 calls in flight.")
    for wrong, words in ((str(top + 1)[:20], "from 1 to"), ("4e3", "from 1 to"), (str(top - 2), f"is below {top - 1}")):
        page.fill("dialog [name=token]", wrong)
        page.fill("dialog [name=reason]", "worker 3 is gone")
        page.click("dialog button", "Continue")
        page.see("dialog .problem", words)
    page.fill("dialog [name=token]", str(top))
    page.click("dialog button", "Continue")
    page.see("dialog .consequences", f"The fence goes to {top}.")
    assert gw.fence(mark) == top - 1
    page.click("dialog button", "Raise to this token")
    page.see(".facts", f"Fence at {top}")
    assert gw.fence(mark) == top
    page.see(".summary", f"Token {top} took over from {top - 1}")
    page.click(".story button", "Reset")
    page.fill("dialog [name=reason]", "a test")
    page.fill("dialog [name=key]", mark + "x")
    page.click("dialog button", "Continue")
    page.see("dialog .problem", "What was typed is not this key.")
    page.fill("dialog [name=key]", mark)
    page.click("dialog button", "Continue")
    page.see("dialog .consequences", f"The fence at {top} is forgotten.")
    assert gw.fence(mark) == top
    page.click("dialog button", "Forget the fence")
    page.see(".summary li:first-child", "The fence was reset at")
    page.see(".facts", "No fence.")
    assert gw.fence(mark) is None


def test_keys_made_to_do_harm_are_text(page, gw):
    page.open(gw, "#/?namespace=hostile")
    for width, height in ((1280, 800), (360, 740)):
        page.size(width, height)
        page.until(lambda: len(page.rows()) == len(HOSTILE), "the records")
        shown = page.driver.execute_script("return [...document.querySelectorAll('.records .key')].map((key) => key.textContent)")
        assert set(HOSTILE) == set(shown)
        assert page.fits()
    page.size(1280, 800)
    ghosts = page.driver.execute_script("return [...document.querySelectorAll('.records .ghost')].map((ghost) => ghost.dataset.code)")
    assert set(ghosts) == {"U+202E", "U+200B"}
    highest = page.driver.execute_script("return Math.max(...[...document.querySelectorAll('.records .row')].map((row) => row.offsetHeight))")
    assert highest < 60, "one key may not push the others off the screen"
    for key in HOSTILE:
        page.driver.execute_script("[...document.querySelectorAll('.records .key')].find((link) => link.textContent === arguments[0]).click()", key)
        if key == "..":
            page.see(".problem", "Use fencegate history, fencegate fences raise, fencegate fences reset.")
            assert not page.all(".story button"), "what can't be done from here is not offered"
        else:
            page.until(lambda: page.all(".facts", "Fence at 18446744073709551615"), f"the story of {key!r}")
        assert page.driver.execute_script("return document.querySelector('h2 .key').textContent") == key
        page.driver.back()
        page.until(lambda: len(page.rows()) == len(HOSTILE), "the records again")
    assert page.driver.execute_script("return document.querySelectorAll('main img, main script, main iframe').length") == 0


def test_older_records_come_on_demand_and_the_page_does_not_grow_without_end(page, gw, mark):
    def calls(number):
        for call in [gw.send_off(f"/pay/{mark}", 5, mark) for _ in range(number)]:
            expect.relayed(call.result(2 * PATIENCE))

    calls(120)
    gw.wait_audit(120, key=mark)
    page.open(gw, f"#/?key={mark}")
    page.see(".state", "100 records shown")
    page.click("button", "Older records")
    page.see(".state", "following, 120 records shown")
    ids = page.driver.execute_script("return [...document.querySelectorAll('.row')].map((row) => Number(row.dataset.id))")
    assert ids == sorted(set(ids), reverse=True)
    assert not page.all("button", "Older records")
    calls(400)
    newest = gw.wait_audit(520, key=mark)[-1]["id"]
    page.see(".waiting button", "400 new")
    page.click(".waiting button")
    page.until(lambda: page.all(f".row[data-id='{newest}']"), "the newest record")
    page.see(".state", "500 records shown")
    page.click("button", "Older records")
    page.see(".state", "paused, 500 records shown")
    page.click("button", "Back to the newest")
    page.see(".state", "following, 100 records shown")


def test_a_wrong_token_is_asked_for_again_and_the_right_one_can_be_forgotten(page, gw):
    page.driver.get(f"http://127.0.0.1:{gw.admin_port}/#/keys")
    for wrong in ("wrong", "p\u00e4ss"):
        page.enter(wrong)
        page.see("#wrong-token", "not the right one")
    page.allowed.append("401 (Unauthorized)")
    page.enter(gw.admin_token)
    page.see(".list .key", "order-17")
    assert gw.admin_token not in page.driver.current_url
    assert page.driver.execute_script("return [localStorage.length, document.cookie]") == [0, ""]
    page.click("button", "Forget token")
    page.see("#token")
    assert page.driver.execute_script("return sessionStorage.length") == 0
    assert "order-17" not in page.driver.page_source


def test_at_phone_width_nothing_scrolls_sideways(page, gw):
    page.size(360, 740)
    page.open(gw)
    for fragment, seen in (("#/", ".records .row"), ("#/key/default/order-17", ".lanes"), ("#/keys", ".list .key"), ("#/effects", ".list button")):
        page.go(fragment)
        page.see(seen)
        assert page.fits(), fragment
    page.click(".list button", "Resolve")
    page.see("dialog")
    assert page.fits()
    page.click("dialog form:not([hidden]) button", "Cancel")
    page.go("#/?key=order-17")
    page.until(lambda: len(page.rows()) == 3, "the records of order-17")
    page.click(".records .row .more")
    page.see(".details .why")
    assert page.fits()
    page.click("summary", "Numbers by minute")
    page.see(".minutes td")
    assert page.fits()


def focused(page):
    return page.driver.switch_to.active_element


def tab_to(page, fits, most=30, back=False):
    """Tab until the focus is on what fits; everything on the way must show that it has the focus."""
    for _ in range(most):
        keys = ActionChains(page.driver)
        (keys.key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT) if back else keys.send_keys(Keys.TAB)).perform()
        element = focused(page)
        if element.tag_name != "body":
            style = page.driver.execute_script("const s = getComputedStyle(arguments[0]); return s.outlineStyle + s.outlineWidth", element)
            assert style == "solid2px", element.get_attribute("outerHTML")
        if fits(element):
            return element
    raise AssertionError("Tab never got there")


def test_with_the_keyboard_alone(page, gw):
    page.driver.get(f"http://127.0.0.1:{gw.admin_port}/")
    page.until(lambda: focused(page).get_attribute("id") == "token", "the focus in the token's field")
    tab_to(page, lambda e: "Skip to the content" in e.text, back=True).send_keys(Keys.ENTER)
    page.until(lambda: focused(page).get_attribute("id") == "main", "the focus in the content")
    tab_to(page, lambda e: e.get_attribute("id") == "token").send_keys(gw.admin_token, Keys.ENTER)
    page.until(lambda: focused(page).get_attribute("id") == "audit-head", "the focus at the head of the audit")
    tab_to(page, lambda e: e.get_attribute("name") == "key").send_keys("order-17", Keys.ENTER)
    page.until(lambda: len(page.rows()) == 3, "the records of order-17")
    more = tab_to(page, lambda e: "more" in (e.get_attribute("class") or ""))
    more.send_keys(Keys.ENTER)
    page.until(lambda: more.get_attribute("aria-expanded") == "true", "the details")
    tab_to(page, lambda e: "What token 42 did" in e.text).send_keys(Keys.ENTER)
    page.see("h3", "What token 42 did")
    page.until(lambda: focused(page).get_attribute("id") == "story-head", "the focus at the head of the story")
    tab_to(page, lambda e: "Raise" in e.text).send_keys(Keys.ENTER)
    page.until(lambda: focused(page).get_attribute("name") == "token", "the focus in the dialog")
    focused(page).send_keys(Keys.ESCAPE)
    page.gone("dialog")
    page.until(lambda: "Raise" in focused(page).text, "the focus back on the button")


CONTRAST = """
const light = (color) => {
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255).map((c) => (c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4));
    return .2126 * r + .7152 * g + .0722 * b;
};
const back = (node) => {
    for (let at = node; at; at = at.parentElement) {
        const color = getComputedStyle(at).backgroundColor;
        if (color !== "rgba(0, 0, 0, 0)" && color !== "transparent") { return color; }
    }
    return "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("body *")].filter((node) => node.checkVisibility() && node.closest(".fresh, svg, .unseen, .skip, :disabled, option") === null
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim() !== "")).map((node) => {
        const [a, b] = [light(getComputedStyle(node).color), light(back(node))];
        return [node.outerHTML.slice(0, 120), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
    }).filter(([, ratio]) => ratio < 4.5);
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read(page, gw, scheme):
    page.scheme(scheme)
    page.open(gw)
    for fragment, seen in (("#/?key=order-17", ".records .row"), ("#/key/default/order-17", ".lanes"), ("#/effects", ".list button")):
        page.go(fragment)
        page.see(seen)
        assert page.driver.execute_script(CONTRAST) == []
    dark = page.driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(16, 20, 26)"
    assert dark == (scheme == "dark")


def test_a_restart_is_seen_and_survived(page, launch, partner, mark):
    gw = launch(route(partner))
    gw.call(f"/pay/{mark}", 5, mark)
    page.open(gw, f"#/?key={mark}")
    page.until(lambda: len(page.rows(mark)) == 1, "the record")
    gw.settings["admin"]["port"] = gw.admin_port
    gw.stop()
    page.see("#banner", "not reachable since")
    page.see("#state", "Not reachable")
    assert page.rows(mark), "what was there stays to be read"
    gw.start()
    page.gone("#banner")
    page.see("#state", "Ready")
    gw.call(f"/pay/{mark}", 4, mark)
    page.until(lambda: page.rows(mark, "dropped"), "what came after the restart")
    page.allowed += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "503 (Service Unavailable)"]


def test_a_restore_is_no_reset_and_shows_at_every_key(page, launch, partner, mark, tmp_path):
    gw = launch(route(partner))
    gw.call(f"/pay/{mark}", 5, mark)
    gw.wait_audit(1, key=mark)
    gw.stop()
    for arguments in (("backup", tmp_path / "copy"), ("restore", tmp_path / "copy", "--min-token", "100")):
        if arguments[0] == "restore":
            gw.store.rename(gw.store.with_name("lost"))
        done = gw.command(*arguments)
        assert done.returncode == 0, done
    gw.start()
    gw.call(f"/pay/{mark}", 99, mark)
    page.open(gw, f"#/key/default/{mark}")
    page.see(".summary", "Token 100 took over from 5 at ")
    page.see(".summary", " by a restore; no call of token 5 was dropped after that.")
    assert page.all(".tokens li", "99", "1 dropped", "no acceptance on record")
    page.go(f"#/key/default/{mark}-never-seen")
    page.see(".facts", "Fence at 100")
    page.see(".tokens li", "by a restore")
    page.go("#/?reason=restored")
    page.click(".records .row .more")
    page.see(".details .why", "The store was restored from a backup, every fence to at least 100.")


ALARMED = """
const real = window.fetch;
window.fetch = async (url, options) => {
    const answer = await real(url, options);
    if (!url.endsWith("v1/stats")) { return answer; }
    const stats = await answer.json();
    stats.state = "not-ready";
    stats.reason = "no space left on device";
    stats.store.used_bytes = stats.store.max_bytes * 0.9;
    stats.alarms = [{ name: "in-doubt", since: stats.started_at, text: "An effect waits for somebody to ask the partner." },
        { name: "token-regression", route: "<b>payments", since: stats.started_at, text: "Many keys got stale tokens." }];
    return Response.json(stats);
};
"""


def test_alarms_and_limits_are_seen(page, gw):
    page.open(gw)
    page.see("#state", "Ready")
    page.allowed.append("400 (Bad Request)")  # no route has such a name: the page asks for its drops all the same
    page.driver.execute_script(ALARMED)
    page.see("#state", "Not ready: no space left on device")
    page.see(".alarms li", "In doubt: An effect waits for somebody")
    page.see(".alarms li", " on <b>payments: Many keys got stale tokens.")
    page.see(".gauge.nearly", "Store")
    page.click(".alarms a", "Stale calls")
    page.until(lambda: page.see(".filter [name=reason]").get_attribute("value") == "stale-token", "the filter")
    page.click(".alarms a", "Effects in doubt")
    page.see("h3", "In doubt")


def test_under_a_foreign_name_the_page_says_that_it_gets_no_data(page, gw):
    page.driver.get(f"http://{FOREIGN}:{gw.admin_port}/")
    page.see("#banner", "The gateway refuses to give data to this page: Host must be an IP address")
    assert not page.all("#token"), "the token is not asked for where another's page could read it"
    page.allowed.append("400 (Bad Request)")


def test_the_hour_by_route_with_its_numbers(page, gw):
    page.open(gw)
    row = page.see(".flows tbody tr", "payments")
    name = row.find_elements(By.CSS_SELECTOR, "svg")[1].get_attribute("aria-label")
    assert re.fullmatch(r"payments, dropped: [1-9]\d* in the last \d+ minutes?, at most [1-9]\d* in a minute", name)
    assert row.find_elements(By.CSS_SELECTOR, "td .total")[1].text in name
    counted = page.see(".section-head .faint", "counted since")
    width = page.driver.execute_script("return Number(document.querySelector('.uncounted').getAttribute('width'))")
    assert counted and 0 < width < 60 * 5, "what was before the start is not shown as nothing"
    ActionChains(page.driver).move_to_element_with_offset(row.find_elements(By.CSS_SELECTOR, "svg")[0], -100, 0).perform()
    page.see(".readout", "not counted")
    page.click("summary", "Numbers by minute")
    page.see(".minutes td", "Not counted before")
    page.click(".minutes td:nth-child(4) a")
    page.until(lambda: page.rows() and len(page.rows("dropped", "payments")) == len(page.rows()), "the drops of that minute")
    assert re.search(r"kind=dropped&route=payments&since=.*&until=", page.driver.current_url)
