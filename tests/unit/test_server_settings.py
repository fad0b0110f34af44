"""gangline.toml: one set of defaults, every field of the policy, everything wrong at once."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gangline.compose.access import Access
from gangline.compose.pools import OpenedPool
from gangline.compose.server import LocalPools, _local_pool, _nodes_of_this_box
from gangline.core.errors import BadInput
from gangline.core.policy import Policy
from gangline.core.server.merging import list_settings
from gangline.core.server.programs import ServerProgram
from gangline.core.server.settings import (
    TRUST_MAX,
    PoolSettings,
    ServerSettings,
    make_policy,
    merge_file,
)


def refused(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        merge_file(ServerSettings, text, "gangline.toml")
    return caught.value.message


def test_an_empty_file_is_the_defaults() -> None:
    assert merge_file(ServerSettings, "", "x").settings == ServerSettings(policy=Policy(), pools={})
    assert make_policy({}) == Policy()


def test_every_field_of_the_policy_is_a_setting() -> None:
    values = [each for each in list_settings(ServerSettings()) if each.section == "policy"]
    assert [each.name for each in values] == list(Policy.__slots__)
    given = [each for each in values if each.default is not None]
    text = "\n".join(f"{each.name} = {each.default!r}".replace("True", "true") for each in given)
    assert merge_file(ServerSettings, f"[policy]\n{text}", "x").settings.policy == Policy()


def test_prices_of_storage_and_egress_are_not_known_unless_they_are_set_and_zero_is_known() -> None:
    assert Policy().storage_usd_per_gb_month is None and Policy().egress_usd_per_gb is None
    policy = merge_file(
        ServerSettings, "[policy]\nstorage_usd_per_gb_month = 0\negress_usd_per_gb = 0.09", "x"
    ).settings.policy
    assert policy.storage_usd_per_gb_month == 0 and policy.egress_usd_per_gb == 0.09


def test_every_setting_has_a_sentence() -> None:
    assert all(re.fullmatch(r"[A-Z].+\.", each.meaning, re.DOTALL) for each in list_settings(ServerSettings()))


def test_everything_that_is_wrong_is_said_at_once_with_its_name() -> None:
    text = """
    polcy = 1
    [policy]
    lease_z = 1
    idle_s = -1
    bans = "no"
    checkpoints_kept = 1
    stall_s = true
    [pools.cloud]
    trust = 20
    nodes_min = 3
    nodes_max = 2
    """
    says = refused(text)
    for named in ("polcy", "lease_z", "policy.idle_s", "policy.bans", "policy.stall_s", "pools.cloud.trust"):
        assert named in says, (named, says)
    assert "checkpoints_kept is at least 2" in says and "nodes_min is at most nodes_max" in says


def test_contradictions_are_said_together() -> None:
    says = refused("[policy]\nlease_s = 5\nnode_silent_s = 1\ncheckpoints_kept = 0")
    assert "lease_s is at least twice" in says and "node_silent_s" in says and "checkpoints_kept" in says


def test_a_contradiction_with_a_value_that_is_wrong_itself_is_not_said() -> None:
    says = refused('[policy]\nheartbeat_interval_s = "often"\nlease_s = 5')
    assert "policy.heartbeat_interval_s" in says and "twice" not in says


def test_a_misspelt_name_is_met_with_the_right_one() -> None:
    with pytest.raises(BadInput) as caught:
        merge_file(ServerSettings, "[policy]\nseek_fast = true", "x")
    assert caught.value.hint == "did you mean seek_faster?"


def test_what_is_no_toml() -> None:
    assert refused("= 3").startswith("gangline.toml is not TOML: invalid statement")


def test_of_a_long_lease_follows_what_would_contradict_it_and_nothing_else() -> None:
    long = make_policy({"lease_s": 20_000})
    assert (long.node_silent_s, long.orphans_s) == (60_000, 60_000) and long.reserve_s > long.notice_s
    changed = {name for name in Policy.__slots__ if getattr(long, name) != getattr(Policy(), name)}
    assert changed == {"lease_s", "node_silent_s", "orphans_s", "reserve_s"}
    assert make_policy({"lease_s": 60, "node_silent_s": 90}).node_silent_s == 90


def test_a_short_lease_changes_only_itself() -> None:
    assert make_policy({"lease_s": 20}) == Policy(lease_s=20)


def test_a_pool_that_is_not_named_has_no_price_and_no_trust() -> None:
    settings = merge_file(ServerSettings, "[pools.cloud]\nprice_usd_per_hour = 0\ntrust = 1", "x").settings
    assert settings.pool("cloud").price_micro_usd_per_hour == 0
    assert settings.pool("default") == PoolSettings(price_usd_per_hour=None, trust=None)
    assert settings.pool("default").trust_of_joined == 0


@pytest.mark.parametrize(("said", "trust"), [(None, TRUST_MAX), (0, 0), (3, 3)])
def test_the_servers_own_box_is_trusted_most_unless_the_settings_say_otherwise(
    said: int | None, trust: int, tmp_path: Path
) -> None:
    access = Access(url="http://here", operator_key="o", join_token="j", signing_secret="s")
    (offer,) = _nodes_of_this_box(
        ServerProgram(home=tmp_path), tmp_path, 1, access, PoolSettings(trust=said), None
    ).offers()
    assert offer.trust == trust and not offer.price_known
    assert PoolSettings(trust=said).trust_of_joined == (said or 0)


def test_a_pool_of_this_box_is_made_once_however_often_it_is_opened(tmp_path: Path) -> None:
    """Another one would take the nodes that run for nodes of an earlier server."""
    access = Access(url="http://here", operator_key="o", join_token="j", signing_secret="s")
    settings = ServerSettings(server=ServerProgram(home=tmp_path))
    own = _nodes_of_this_box(settings.server, tmp_path / "nodes", 0, access, PoolSettings(), None)
    pools = LocalPools(own, partial(_local_pool, settings, access, None))
    opened = OpenedPool(name="spare", id="", settings=None, provider=None, secret="")
    assert pools.add(opened) is pools.add(replace(opened, id="pool-1")) is not own
    pools.stop_all()
