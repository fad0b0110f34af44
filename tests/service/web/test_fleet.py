"""The fleet on the page: nodes with their gauges, speeds and strikes for all, pools and what is done to them for operators."""

import re
from collections.abc import Callable
from dataclasses import replace

from gangline.ports.server import Beat
from gangline.service.fleet.measured.record import attempts_of_node, machine_strikes
from gangline.service.fleet.measured.speeds import node_speeds
from gangline.service.jobs.claim import claim
from gangline.service.jobs.renew import renew
from gangline.web.fleet.followed import FleetScreen, NodeScreen
from gangline.web.fleet.shown import AskedNodes
from tests.service.conftest import POLICY, PROJECT, Service
from tests.service.fleet.test_pools import add, look
from tests.service.test_rules import a_contrast, advance, beat, fail, misbehave, release, succeed
from tests.service.web.conftest import Browser
from tests.wire.record import GAUGES

HOSTILE = "<script>alert(1)</script>\"'"


def rows(html: str) -> list[str]:
    return re.findall(r'<li id="(node-\d+)" class="node"', html)


def fleet(service: Service, asked: AskedNodes | None = None, project: str | None = None) -> FleetScreen:
    screen = FleetScreen(project, asked or AskedNodes(), operates=True, may=True)
    screen.refresh(service.deployment, None)
    return screen


def test_viewers_see_nodes_and_operators_also_pools(page: Service, signed_in: Callable[[str], Browser]) -> None:
    add(page, "cloud-1", nodes_max=3)
    page.join("bear")
    viewer, operator = signed_in("viewer").get("/fleet").text, signed_in("operator").get("/fleet").text
    for html in (viewer, operator):
        assert "bear" in html and "1 node" in html
    assert "cloud-1" not in viewer and "hx-post" not in viewer.split("<main")[1]
    assert "cloud-1" in operator and "of 0 to 3" in operator and "/fleet/pools/cloud-1/pause" in operator


def test_jobs_of_other_projects_are_not_shown(page: Service, signed_in: Callable[..., Browser]) -> None:
    page.add_project("other")
    job, node = page.submit("other"), page.join("bear")
    hold = page.claim(node).hold
    advance(page, node, hold)
    for browser, sees in (
        (signed_in("viewer"), False),
        (signed_in("viewer", "other"), True),
        (signed_in("operator"), True),
    ):
        for address in ("/fleet", f"/fleet/{node}"):
            assert (job in browser.get(address).text) is sees
    (attempt,) = attempts_of_node(page.deployment, node, PROJECT, page.now_ms)
    assert (attempt.job, attempt.name, attempt.because, attempt.state) == (None, None, "", "live")


def test_nodes_are_filtered_sorted_and_shown_in_parts(page: Service, signed_in: Callable[[str], Browser]) -> None:
    names = {page.join(f"node-{number}", gpu="T4" if number % 2 else "A100"): number for number in range(105)}
    browser = signed_in("viewer")
    first = browser.get("/fleet")
    assert [names[node] for node in rows(first.text)] == list(range(60))
    assert "/fleet/more?after=60" in first.text
    assert [names[node] for node in rows(browser.part("/fleet/more?after=60").text)] == list(range(60, 105))
    assert [names[node] for node in rows(browser.get("/fleet?search=NODE-104").text)] == [104]
    by_gpu = [names[node] for node in rows(browser.get("/fleet?sort=gpu").text)]
    assert by_gpu == [*range(0, 105, 2), *range(1, 15, 2)]
    assert "No node is like this" in browser.get("/fleet?state=quarantined").text
    assert browser.get("/fleet?sort=nonsense&pool=nowhere").status_code == 200


def test_gauges_are_shown_and_greyed_when_they_are_old(page: Service, signed_in: Callable[[str], Browser]) -> None:
    node = page.join("bear", gpu="T4")
    claim(page.deployment, node, page.now_ms, GAUGES)
    browser = signed_in("viewer")
    for address in ("/fleet", f"/fleet/{node}"):
        assert "<meter" in browser.get(address).text and 'class="gauges old"' not in browser.get(address).text
    assert browser.part(f"/fleet/sparks?node={node}&node=none").json().keys() == {node, "none"}
    page.wait(120)
    for address in ("/fleet", f"/fleet/{node}"):
        assert 'class="gauges old"' in browser.get(address).text


def test_a_node_is_compared_with_machines_that_do_the_same_work(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    for number in range(8):
        page.submit(seed=number)
    nodes = [page.join(f"bear-{number}", gpu="T4") for number in range(8)]
    for number, node in enumerate(nodes):
        beat(page, node, page.claim(node).hold, 10, seconds_per_step=1.0 if number else 3.0)
    speeds = node_speeds(page.deployment)
    slow, other = speeds[nodes[0]], speeds[nodes[1]]
    assert slow.is_slow and slow.ratio is not None and 2.9 < slow.ratio < 3.1 and not other.is_slow
    assert "3.00× usual, slow" in signed_in("viewer").get("/fleet").text
    assert slow.machines == 8


def test_strikes_are_shown_with_their_evidence(page: Service, signed_in: Callable[[str], Browser]) -> None:
    node = page.join("bear", gpu="T4")
    misbehave(page, node)
    (strike,) = machine_strikes(page.deployment, "machine-of-bear", None, page.now_ms)
    assert (strike.says, strike.strikes, strike.counts) == ("the GPU failed", 1, False)
    assert "does not count" in strike.because
    assert machine_strikes(page.deployment, "machine-of-bear", "other", page.now_ms)[0].job is None
    a_contrast(page, gpu="T4")
    (strike,) = machine_strikes(page.deployment, "machine-of-bear", None, page.now_ms)
    assert strike.counts and strike.because == "the same work went well on another machine with such a GPU"
    html = signed_in("viewer").get(f"/fleet/{node}").text
    assert "the GPU failed" in html and strike.because in html


def test_a_quarantine_says_until_when_and_a_release_ends_it(page: Service, signed_in: Callable[[str], Browser]) -> None:
    node, operator = page.join("bear"), signed_in("operator")
    assert operator.post("/fleet/actions", node=node, action="quarantine", hours="2").status_code == 204
    found = page.ask("GET", f"/v1/nodes/{node}").json()
    assert found["state"] == "quarantined" and found["machine"]["quarantined_until_ms"] == page.now_ms + 7_200_000
    assert "In quarantine until" in operator.get(f"/fleet/{node}").text
    operator.post("/fleet/actions", node=node, action="release")
    assert page.ask("GET", f"/v1/nodes/{node}").json()["state"] == "ready"
    for hours in ("0", "-1", "9000", "x", "nan"):
        assert operator.post("/fleet/actions", node=node, action="quarantine", hours=hours).status_code == 422
    assert page.ask("GET", f"/v1/nodes/{node}").json()["state"] == "ready"


def test_the_reason_of_a_quarantine_is_shown_with_the_node_and_in_the_events_of_its_jobs(
    page: Service, signed_in: Callable[[str], Browser]
) -> None:
    node, job, operator = page.join("bear"), page.submit(), signed_in("operator")
    hold = page.claim(node).hold
    wish = {"node": node, "action": "quarantine", "stop": "1", "reason": "its fan <b> is loud"}
    assert operator.post("/fleet/actions", **wish | {"reason": "a\x1b[31m"}).status_code == 422
    assert operator.post("/fleet/actions", **wish | {"reason": "x" * 201}).status_code == 422
    assert operator.post("/fleet/actions", **wish).status_code == 204
    said = "quarantined by an operator: its fan <b> is loud"
    found = page.ask("GET", f"/v1/nodes/{node}").json()
    assert found["because"] == found["machine"]["because"] == said
    html = signed_in("viewer").get(f"/fleet/{node}").text
    assert "its fan &lt;b&gt; is loud" in html and "<b> is loud" not in html
    release(page, node, hold)
    assert any(said in event["because"] for event in page.ask("GET", f"/v1/jobs/{job}/events").json())
    api = page.ask("POST", f"/v1/nodes/{node}/quarantine", params={"reason": " again "})
    assert api.json()["machine"]["because"] == "quarantined by an operator: again"


def test_one_that_refuses_does_not_stop_the_others(page: Service, signed_in: Callable[[str], Browser]) -> None:
    node, operator = page.join("bear"), signed_in("operator")
    answer = operator.post("/fleet/actions", node=[node, "none"], action="drain")
    assert answer.status_code == 204 and "1 node not: there is no node none" in answer.headers["hx-trigger"]
    assert page.ask("GET", f"/v1/nodes/{node}").json()["state"] == "draining"
    assert operator.post("/fleet/actions", node="none", action="drain").status_code == 404
    assert operator.post("/fleet/actions", action="drain").status_code == 422
    assert operator.post("/fleet/actions", node=node, action="explode").status_code == 422


def test_drain_now_hands_the_jobs_back(page: Service, signed_in: Callable[[str], Browser]) -> None:
    page.submit()
    node = page.join("bear")
    hold = page.claim(node).hold
    signed_in("operator").post("/fleet/actions", node=node, action="stop")
    assert renew(page.deployment, node, hold, Beat(phase="training", step=1), page.now_ms).stop  # type: ignore[union-attr]


def test_pools_are_paused_resumed_asked_and_changed(page: Service, signed_in: Callable[[str], Browser]) -> None:
    add(page, "cloud-1", nodes_max=3, price_max_usd_per_hour=5.0)
    operator = signed_in("operator")
    assert operator.post("/fleet/pools/cloud-1/pause").status_code == 204
    assert page.ask("GET", "/v1/pools/cloud-1").json()["state"] == "paused"
    operator.post("/fleet/pools/cloud-1/resume")
    assert operator.post("/fleet/pools/cloud-1/sync").status_code == 204
    answer = operator.post("/fleet/pools/cloud-1/change", nodes_min="1", nodes_max="4", price_max_usd_per_hour="")
    assert answer.status_code == 204, answer.text
    found = page.ask("GET", "/v1/pools/cloud-1").json()
    assert (found["state"], found["nodes_min"], found["nodes_max"]) == ("active", 1, 4)
    assert found["price_max_usd_per_hour"] is None
    operator.post("/fleet/pools/cloud-1/change", nodes_max="5")
    found = page.ask("GET", "/v1/pools/cloud-1").json()
    assert (found["nodes_min"], found["nodes_max"], found["price_max_usd_per_hour"]) == (1, 5, None)
    for wrong in ({"nodes_min": "9", "nodes_max": "2"}, {"nodes_max": "many"}, {"price_max_usd_per_hour": "-1"}):
        assert operator.post("/fleet/pools/cloud-1/change", **wrong).status_code == 422
    assert page.ask("GET", "/v1/pools/cloud-1").json()["nodes_max"] == 5


def test_a_pool_says_why_its_nodes_start(page: Service, signed_in: Callable[[str], Browser]) -> None:
    add(page, "cloud-1", nodes_min=1, nodes_max=1)
    look(page)
    html = signed_in("operator").get("/fleet").text
    (node,) = page.ask("GET", "/v1/nodes").json()
    assert node["state"] == "starting" and f"nodes start: {node['because'].split(';')[0]}" in html
    assert "1 starting" in html
    bill = signed_in("operator").get(f"/fleet/{node['id']}").text
    assert (
        "Bill of the rental" in bill and "Bill of the rental" not in signed_in("admin").get(f"/fleet/{node['id']}").text
    )


def test_a_pools_interruptions_are_those_of_the_costs(page: Service, signed_in: Callable[[str], Browser]) -> None:
    page.submit()
    silent, heard = page.join("bear"), page.join("wolf")
    page.claim(silent)
    page.wait(POLICY.lease_s + 1)
    page.tick()
    page.wait(POLICY.retry_max_s)
    operator = signed_in("operator")
    assert "<dd>1 <small>1 fell silent</small></dd>" in operator.get("/fleet").text
    release(page, heard, page.claim(heard).hold)
    assert "<dd>2 <small>1 fell silent</small></dd>" in operator.get("/fleet").text
    assert "2 interruptions cost" in operator.get("/cost?days=all").text


def test_only_what_changed_is_sent_to_open_pages(page: Service) -> None:
    first, second = page.join("bear"), page.join("wolf")
    screen = fleet(page)
    assert rows(screen.whole()) == [first, second]
    page.wait(2)
    assert screen.refresh(page.deployment, None) == ""
    page.submit()
    page.claim(second)
    sent = screen.refresh(page.deployment, None)
    assert rows(sent) == [second] and 'hx-swap-oob="outerMorph"' in sent
    third = page.join("lynx")
    sent = screen.refresh(page.deployment, None)
    assert rows(sent.split('<ol id="nodes" hx-swap-oob="afterbegin">')[1].split("</ol>")[0]) == [third]
    page.execute(f"UPDATE node SET state = 'gone' WHERE id = '{first}'")
    assert f'<li id="{first}" hx-swap-oob="delete">' in screen.refresh(page.deployment, None)
    assert first not in screen.whole()
    only = fleet(page, AskedNodes(search="lynx"))
    assert rows(only.whole()) == [third]


def test_a_node_that_joins_an_empty_list_is_added_to_it(page: Service, signed_in: Callable[[str], Browser]) -> None:
    screen, waits = fleet(page), fleet(page, AskedNodes(search="wolf"))
    for name in ("bear", "wolf"):
        node = page.join(name)
        sent = screen.refresh(page.deployment, None)
        assert rows(sent.split('<ol id="nodes" hx-swap-oob="afterbegin">')[1].split("</ol>")[0]) == [node]
        assert (f'<ol id="nodes" hx-swap-oob="afterbegin"><li id="{node}"' in waits.refresh(page.deployment, None)) is (
            name == "wolf"
        )
        # What a list says as it is empty is in it from the beginning, for when its last node is gone.
        assert "No node is here" in signed_in("viewer").get("/fleet").text
        page.execute("UPDATE node SET state = 'gone'")
        assert f'<li id="{node}" hx-swap-oob="delete">' in screen.refresh(page.deployment, None)


def test_a_node_is_followed_until_it_is_gone(page: Service) -> None:
    node = page.join("bear")
    screen = NodeScreen(node, None, may=True)
    assert screen.refresh(page.deployment, None) and screen.refresh(page.deployment, None) == ""
    claim(page.deployment, node, page.now_ms, GAUGES)
    assert 'id="node-gauges"' in screen.refresh(page.deployment, None)
    page.execute("UPDATE node SET state = 'gone'")
    assert "gone" in screen.refresh(page.deployment, None)


def test_text_of_nodes_is_escaped(page: Service, signed_in: Callable[[str], Browser]) -> None:
    gauges = replace(GAUGES, gpus=())
    node = page.join("bear", gpu=HOSTILE, problems={"driver": HOSTILE}, capabilities={"cuda": HOSTILE})
    page.submit()
    hold = page.claim(node).hold
    renew(page.deployment, node, hold, Beat(phase="training", step=1, gauges=gauges), page.now_ms)
    page.execute(f"UPDATE node SET because = '{HOSTILE.replace(chr(39), chr(39) * 2)}', name = '<b>bear'")
    fail(page, node, hold, "gpu error")
    browser = signed_in("operator")
    screens = [browser.get("/fleet").text, browser.get(f"/fleet/{node}").text, fleet(page).whole()]
    for html in screens:
        assert "<script>alert" not in html and "<b>bear" not in html and "&lt;script&gt;" in html


def test_an_ended_attempt_has_its_cost(page: Service) -> None:
    job, node = page.submit(), page.join("bear")
    hold = page.claim(node).hold
    advance(page, node, hold)
    succeed(page, node, hold)
    (attempt,) = attempts_of_node(page.deployment, node, None, page.now_ms)
    cost = page.ask("GET", f"/v1/jobs/{job}").json()["attempts"][0]["cost_usd"]
    assert (attempt.job, attempt.state, attempt.cost_usd) == (job, "succeeded", cost)
