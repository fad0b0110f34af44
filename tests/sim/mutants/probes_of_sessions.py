"""Rules about the sessions of the page."""

from gangline.core.errors import Denied
from gangline.service.access.access import ensure_secret, recognize
from gangline.service.access.sessions import CODE_S, SESSION_S, make_code, sign_in, sign_in_with_code
from tests.sim.mutants.bench import Bench, probe

KEY = "gl_operator_of_a_probe"


def is_refused(bench: Bench, code: str) -> bool:
    try:
        sign_in_with_code(bench.deployment, code, bench.now_ms)
    except Denied:
        return True
    return False


@probe()
def a_session_that_lasts_stays_when_those_that_have_ended_are_forgotten(bench: Bench) -> None:
    ensure_secret(bench.deployment, KEY, "operator", now_ms=bench.now_ms)
    first = sign_in(bench.deployment, KEY, bench.now_ms)
    bench.wait(SESSION_S / 2)
    second = sign_in(bench.deployment, KEY, bench.now_ms)
    assert recognize(bench.deployment, first, "viewer", bench.now_ms).role == "operator"
    bench.wait(SESSION_S / 2)
    sign_in(bench.deployment, KEY, bench.now_ms)
    assert recognize(bench.deployment, second, "viewer", bench.now_ms).role == "operator"
    assert len(bench.look("SELECT hash FROM session")) == 2


@probe()
def a_code_signs_in_once_and_not_too_late(bench: Bench) -> None:
    ensure_secret(bench.deployment, KEY, "operator", now_ms=bench.now_ms)
    operator = recognize(bench.deployment, KEY, "operator", bench.now_ms)
    codes = [make_code(bench.deployment, operator, None, bench.now_ms).path.partition("=")[2] for _ in range(2)]
    sign_in_with_code(bench.deployment, codes[0], bench.now_ms)
    assert is_refused(bench, codes[0])
    bench.wait(CODE_S)
    assert is_refused(bench, codes[1])
