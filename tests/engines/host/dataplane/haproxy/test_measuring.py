"""The requests of backends, from what HAProxy shows of them."""

from __future__ import annotations

import pytest

from reconciler.engines.host.dataplane.haproxy.measuring import read_request_counts
from reconciler.engines.host.dataplane.protocol import RequestCounts
from reconciler.errors import EngineError
from reconciler.model.key import Key

WEB, API = Key.parse("workload/shop/web"), Key.parse("workload/shop/api")
HEAD = "# pxname,svname,qcur,scur,stot,bout,qtime,ctime,rtime,ttime,\n"


def test_a_workload_has_the_requests_of_all_its_backends() -> None:
    text = f"{HEAD}web,BACKEND,0,1,30,9,1,2,3,9,\nweb-admin,BACKEND,0,0,10,9,0,0,10,9,\napi,BACKEND,0,0,0,9,,,,,\n\n"
    counts = read_request_counts(text, {"web": WEB, "web-admin": WEB, "api": API})
    assert counts == {WEB: RequestCounts(40, None, 7.0), API: RequestCounts(0, None, 0.0)}


def test_rows_of_others_do_not_count() -> None:
    text = f"{HEAD}web,BACKEND,0,1,30,9,1,2,3,9,\nweb,a-1,0,1,30,9,1,2,3,9,\n_own,BACKEND,0,0,10,9,0,0,10,9,\n"
    assert read_request_counts(text, {"web": WEB}) == {WEB: RequestCounts(30, None, 6.0)}
    assert read_request_counts("", {"web": WEB}) == {}


def test_another_form_is_refused_in_words() -> None:
    with pytest.raises(EngineError, match="unknown form"):
        read_request_counts("# pxname,svname,stot\nweb,BACKEND,3\n", {"web": WEB})
