"""Quotas of users, client ids and addresses: list and change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semel.client.admin.admin_requests import AdminPart, problem_of
from semel.client.admin.outcome import Sheet
from semel.client.admin.security_values import CLIENT_ID, IP, USER, QuotaEntity, QuotaMatch
from semel.client.errors import BadSetting
from semel.wire.spec import alter_client_quotas as altering
from semel.wire.spec import describe_client_quotas as describing
from semel.wire.spec.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaOperation,
)
from semel.wire.spec.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
)


class QuotasPart(AdminPart):
    async def describe_client_quotas(
        self, wanted: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Quotas by whom they limit; all of them, or those that fit `wanted`, which maps user, client-id or ip to a
        name, to an empty text for the default, or to None for any. `strict`: of these kinds only."""
        components = [_component(kind, name) for kind, name in (wanted or {}).items()]
        answer = await self._ask.one(
            "describing quotas",
            DescribeClientQuotasRequest(components=components, strict=strict),
            DescribeClientQuotasResponse,
            problem=problem_of,
        )
        return {
            _entity(entry.entity): {value.key: value.value for value in entry.values} for entry in answer.entries or ()
        }

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Sets quotas; None removes one. It may be repeated."""
        sheet: Sheet[QuotaEntity, None] = Sheet(changes, lambda entity: f"changing quotas of {entity}")

        async def ask(node_id: int, entities: list[QuotaEntity]) -> None:
            request = AlterClientQuotasRequest(
                entries=[
                    QuotaAlteration(
                        entity=[
                            altering.QuotaEntity(entity_type=kind, entity_name=name or None)
                            for kind, name in _parts(entity).items()
                        ],
                        ops=[
                            QuotaOperation(key=key, value=0.0 if value is None else value, remove=value is None)
                            for key, value in changes[entity].items()
                        ],
                    )
                    for entity in entities
                ],
                validate_only=validate_only,
            )
            answer = await self._ask.cluster.call(node_id, request, AlterClientQuotasResponse)
            for result in answer.entries:
                entity = _entity(result.entity)
                if sheet.accepts(entity, result.error_code, result.error_message):
                    sheet.done(entity, None)

        await self._ask.work_off(sheet, self._ask.to_controller, ask)


def _component(kind: str, name: str | None) -> QuotaFilterComponent:
    if kind not in (USER, CLIENT_ID, IP):
        raise BadSetting(f"quotas are for {USER}, {CLIENT_ID} and {IP}, not for {kind!r}")
    match = QuotaMatch.ANY if name is None else QuotaMatch.EXACT if name else QuotaMatch.DEFAULT
    return QuotaFilterComponent(entity_type=kind, match_type=match, match=name or None)


def _parts(entity: QuotaEntity) -> dict[str, str]:
    named = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    parts = {kind: name for kind, name in named.items() if name is not None}
    if not parts:
        raise BadSetting("a quota limits somebody: a user, a client id or an address")
    return parts


def _entity(parts: Sequence[describing.QuotaEntity] | Sequence[altering.QuotaEntity]) -> QuotaEntity:
    names = {part.entity_type: part.entity_name or "" for part in parts}
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
