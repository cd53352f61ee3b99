"""Access rules: list, create, delete."""

from __future__ import annotations

from collections.abc import Iterable

from semel.client.admin.admin_requests import AdminPart, problem_of
from semel.client.admin.outcome import Sheet, admin_error
from semel.client.admin.security_values import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
)
from semel.wire.errors import ErrorCode
from semel.wire.spec.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from semel.wire.spec.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from semel.wire.spec.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_EVERYTHING = AclFilter()


class AclsPart(AdminPart):
    async def describe_acls(self, wanted: AclFilter = _EVERYTHING) -> list[AclBinding]:
        """The rules that fit a filter; all of them without one."""
        answer = await self._ask.one(
            "describing access rules",
            DescribeAclsRequest(
                resource_type_filter=wanted.resource_type,
                resource_name_filter=wanted.resource_name,
                pattern_type_filter=wanted.pattern_type,
                principal_filter=wanted.principal,
                host_filter=wanted.host,
                operation=wanted.operation,
                permission_type=wanted.permission,
            ),
            DescribeAclsResponse,
            problem=problem_of,
        )
        return [
            AclBinding(
                AclResourceType(resource.resource_type),
                resource.resource_name,
                acl.principal,
                AclOperation(acl.operation),
                AclPermission(acl.permission_type),
                AclPatternType(resource.pattern_type),
                acl.host,
            )
            for resource in answer.resources
            for acl in resource.acls
        ]

    async def create_acls(self, rules: AclBinding | Iterable[AclBinding]) -> None:
        """Creates rules. One that is there already stays: it may be repeated."""
        many = [rules] if isinstance(rules, AclBinding) else list(rules)
        sheet: Sheet[AclBinding, None] = Sheet(many, lambda rule: f"creating {rule}")

        async def ask(node_id: int, items: list[AclBinding]) -> None:
            request = CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=rule.resource_type,
                        resource_name=rule.resource_name,
                        resource_pattern_type=rule.pattern_type,
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in items
                ]
            )
            answer = await self._ask.cluster.call(node_id, request, CreateAclsResponse)
            # Answered in the order of the request, without saying which is which.
            for rule, result in zip(items, answer.results, strict=False):
                if sheet.accepts(rule, result.error_code, result.error_message):
                    sheet.done(rule, None)

        await self._ask.work_off(sheet, self._ask.to_controller, ask)

    async def delete_acls(self, filters: AclFilter | Iterable[AclFilter]) -> dict[AclFilter, list[AclBinding]]:
        """Deletes the rules that fit filters; returns what each of them deleted. After an answer that was lost, the
        rules that the lost attempt deleted are not among them."""
        many = [filters] if isinstance(filters, AclFilter) else list(filters)
        sheet: Sheet[AclFilter, list[AclBinding]] = Sheet(many, lambda wanted: f"deleting rules by {wanted}")

        async def ask(node_id: int, items: list[AclFilter]) -> None:
            request = DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=wanted.resource_type,
                        resource_name_filter=wanted.resource_name,
                        pattern_type_filter=wanted.pattern_type,
                        principal_filter=wanted.principal,
                        host_filter=wanted.host,
                        operation=wanted.operation,
                        permission_type=wanted.permission,
                    )
                    for wanted in items
                ]
            )
            answer = await self._ask.cluster.call(node_id, request, DeleteAclsResponse)
            for wanted, result in zip(items, answer.filter_results, strict=False):
                if sheet.accepts(wanted, result.error_code, result.error_message):
                    _read_deleted(sheet, wanted, result)

        return await self._ask.work_off(sheet, self._ask.to_controller, ask)


def _read_deleted(sheet: Sheet[AclFilter, list[AclBinding]], wanted: AclFilter, result: DeleteAclsFilterResult) -> None:
    deleted = []
    for found in result.matching_acls:
        rule = AclBinding(
            AclResourceType(found.resource_type),
            found.resource_name,
            found.principal,
            AclOperation(found.operation),
            AclPermission(found.permission_type),
            AclPatternType(found.pattern_type),
            found.host,
        )
        if found.error_code != ErrorCode.NONE:
            sheet.fail(wanted, admin_error(found.error_code, f"deleting {rule}", found.error_message))
            return
        deleted.append(rule)
    sheet.done(wanted, deleted)
