"""Creates resources from options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reconciler.errors import UsageError
from reconciler.input_files import STDIN
from reconciler.platform_cli.commands.resources import create_resource, query_spec, tags_of
from reconciler.platform_cli.documents import read_text
from reconciler.platform_cli.option_values import parse_pairs, whole_number
from reconciler.platform_cli.session import Session
from reconciler.platform_cli.table.kinds import KINDS

_HOW = {
    "aws": "1. In IAM, create a role that the account of the platform may assume, with the external id of the org.\n"
    "2. Attach the policies that the workloads need.\n"
    "3. platform cloudaccount create-aws --name NAME --role-arn arn:aws:iam::ACCOUNT:role/ROLE\n",
    "azure": "1. Deploy the connector as a function app, and note its address and code.\n"
    "2. Give its identity the roles that the workloads need.\n"
    "3. platform cloudaccount create-azure --name NAME --secret SECRET --url URL --code CODE\n",
    "gcp": "1. In IAM, give the service account of the platform the roles that the workloads need in the project.\n"
    "2. platform cloudaccount create-gcp --name NAME --project-id PROJECT\n",
}


def build_envelope(values: Mapping[str, Any]) -> dict[str, Any]:
    """The members that every manifest begins with, from options; the description defaults to the name."""
    name, description = values["name"], values.get("description")
    return {"name": name, "description": name if description is None else description, **tags_of(values.get("tag", ()))}


def create_plain(session: Session, kind: str, **values: Any) -> None:
    """Create a resource without fields of its own."""
    create_resource(session, kind, build_envelope(values))


def create_agent(session: Session, kind: str, **values: Any) -> None:
    """Create an agent. What it connects with is shown this once."""
    agent = create_resource(session, kind, build_envelope(values))
    if session.output.is_text:
        names = ("agentId", "agentLink", "hubEndpoint", "registrationToken")
        session.output.value({name: agent[name] for name in names if name in agent})


def create_domain(session: Session, kind: str, **values: Any) -> None:
    """Create a domain that leads to the workloads of the GVC. A refusal names the record that proves it."""
    create_resource(session, kind, {**build_envelope(values), "spec": {"gvcLink": f"//gvc/{session.gvc}"}})


def create_group(session: Session, kind: str, query_kind: str, **values: Any) -> None:
    """Create a group, with a query for its members."""
    conditions = _build_query_conditions(session, values)
    member_query = {"memberQuery": {"kind": query_kind, "spec": conditions}} if conditions["terms"] else {}
    create_resource(session, kind, {**build_envelope(values), **member_query})


def create_gvc(session: Session, kind: str, location: tuple[str, ...], env: tuple[str, ...], **values: Any) -> None:
    """Create a GVC at locations, or at those that a query finds."""
    placement: dict[str, Any] = {"locationLinks": [f"//location/{text}" for text in location]}
    conditions = _build_query_conditions(session, values)
    if conditions["terms"]:
        placement["locationQuery"] = {"kind": "location", "spec": conditions}
    variables = [{"name": key, "value": value} for key, value in parse_pairs(env, "--env").items()]
    spec = {"staticPlacement": placement} | ({"env": variables} if variables else {})
    create_resource(session, kind, {**build_envelope(values), "spec": spec})


def _build_query_conditions(session: Session, values: Mapping[str, Any]) -> dict[str, Any]:
    names = ("query_match", "query_property", "query_tag", "query_rel")
    return query_spec(session.org, *(values[name] for name in names))


def create_policy(
    session: Session, kind: str, target_kind: str, all_: bool | None, resource: tuple[str, ...], **values: Any
) -> None:
    """Create a policy for all resources of a kind, or for some; bindings are added to it."""
    if bool(all_) == bool(resource):
        raise UsageError("name what the policy is for: --all, or --resource REF")
    is_modelled = target_kind in KINDS
    links = [session.find(text, target_kind).link if is_modelled else f"//{target_kind}/{text}" for text in resource]
    target: dict[str, Any] = {"targetLinks": links} if links else {"target": "all"}
    create_resource(session, kind, {**build_envelope(values), "targetKind": target_kind, **target, "bindings": []})


def cloudaccount_aws(session: Session, kind: str, role_arn: str | None, how: bool | None, **common: Any) -> None:
    """Create an account of AWS."""
    if how:
        session.output.text(_HOW["aws"])
        return
    _create_account(session, kind, "aws", {"roleArn": _require_value(role_arn, "--role-arn")}, common)


def cloudaccount_azure(session: Session, kind: str, how: bool | None, **values: Any) -> None:
    """Create an account of Azure, and the secret of its connector first."""
    if how:
        session.output.text(_HOW["azure"])
        return
    _require_value(values["name"], "--name")
    name, code = _require_value(values["secret"], "--secret"), _require_value(values["code"], "--code")
    connector = {
        "url": _require_value(values["url"], "--url"),
        "code": read_text(STDIN).strip() if code == STDIN else code,
    }
    create_resource(
        session, "secret", {**build_envelope({"name": name}), "type": "azure-connector", "data": connector}, show=False
    )
    _create_account(session, kind, "azure", {"secretLink": f"//secret/{name}"}, values)


def cloudaccount_gcp(session: Session, kind: str, project_id: str | None, how: bool | None, **common: Any) -> None:
    """Create an account of Google Cloud."""
    if how:
        session.output.text(_HOW["gcp"])
        return
    _create_account(session, kind, "gcp", {"projectId": _require_value(project_id, "--project-id")}, common)


def cloudaccount_ngs(session: Session, kind: str, secret: str, **common: Any) -> None:
    """Create an account of NGS."""
    link = secret if "/" in secret else f"//secret/{secret}"
    _create_account(session, kind, "ngs", {"secretLink": link}, common)


def _create_account(
    session: Session, kind: str, provider: str, access: dict[str, str], values: Mapping[str, Any]
) -> None:
    _require_value(values["name"], "--name")
    create_resource(session, kind, {**build_envelope(values), "provider": provider, "data": access})


def _require_value(value: str | None, option: str) -> str:
    if not value:
        raise UsageError(f"add {option}, or --how for the steps of the registration")
    return value


def create_workload(
    session: Session, kind: str, image: str, port: tuple[str, ...], env: tuple[str, ...], **values: Any
) -> None:
    """Create a workload of one container, which ``public`` opens to the internet."""
    container: dict[str, Any] = {"name": "main", "image": image}
    container |= {name: values[name] for name in ("cpu", "memory", "command") if values[name]}
    container |= {"args": [*values["arg"]]} if values["arg"] else {}
    container |= {"ports": [{"number": whole_number(text, "--port")} for text in port]} if port else {}
    variables = [{"name": key, "value": value} for key, value in parse_pairs(env, "--env").items()]
    container |= {"env": variables} if variables else {}
    spec: dict[str, Any] = {"type": values["type_"], "containers": [container]}
    if values["public"]:
        everyone = {"inboundAllowCIDR": ["0.0.0.0/0"], "outboundAllowCIDR": ["0.0.0.0/0"]}
        spec["firewallConfig"] = {"external": everyone}
    create_resource(session, kind, {**build_envelope(values), "spec": spec})


def create_volumeset(session: Session, kind: str, initial_capacity: str, **values: Any) -> None:
    """Create a volume set."""
    spec = {
        "initialCapacity": whole_number(initial_capacity, "--initial-capacity"),
        "performanceClass": values["performance_class"],
        "fileSystemType": values["file_system_type"],
    }
    create_resource(session, kind, {**build_envelope(values), "spec": spec})
