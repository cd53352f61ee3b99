"""Settings of topics, brokers and groups: what they are, where they come from, and changing them one by one.

What concerns one node is asked of that node, and it hands changes on; all others go to the controller.
Every change may be repeated: a list that has an entry already is not given it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum

from semel.client.admin.admin_requests import AdminPart, Route
from semel.client.admin.outcome import Sheet, V
from semel.client.admin.values import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
)
from semel.client.errors import BadSetting
from semel.wire.spec.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribedConfig,
)
from semel.wire.spec.incremental_alter_configs import (
    ConfigAlteration,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigsPart(AdminPart):
    async def describe_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        synonyms: bool = False,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of resources by name; all of them, or those in `names`. `synonyms` adds the other values that
        would count, in order of precedence."""
        wanted = None if names is None else list(names)
        sheet: Sheet[ConfigResource, dict[str, ConfigEntry]] = Sheet(
            _resources(resources), lambda resource: f"describing the settings of {resource}"
        )

        async def ask(node_id: int, items: list[ConfigResource]) -> None:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)
                    for kind, name in items
                ],
                include_synonyms=synonyms,
                include_documentation=documentation,
            )
            answer = await self._ask.cluster.call(node_id, request, DescribeConfigsResponse)
            for result in answer.results:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                if sheet.accepts(resource, result.error_code, result.error_message):
                    sheet.done(resource, {config.name: _entry(config) for config in result.configs})

        return await self._ask.work_off(sheet, self._to_owners(sheet), ask)

    async def alter_configs(
        self,
        resources: ConfigResource | Iterable[ConfigResource],
        *,
        set: Mapping[str, object] | None = None,
        delete: Iterable[str] = (),
        append: Mapping[str, object] | None = None,
        subtract: Mapping[str, object] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Changes these settings of a resource, or of several, and leaves the others as they are. `delete` goes back to
        the default; `append` and `subtract` are for settings that are lists."""
        changes = [
            *_changes(_Operation.SET, set),
            *(ConfigAlteration(name=name, config_operation=_Operation.DELETE) for name in delete),
            *_changes(_Operation.APPEND, append),
            *_changes(_Operation.SUBTRACT, subtract),
        ]
        if not changes:
            raise BadSetting("alter_configs: nothing to set, delete, append or subtract")
        sheet: Sheet[ConfigResource, None] = Sheet(
            _resources(resources), lambda resource: f"changing the settings of {resource}"
        )

        async def ask(node_id: int, items: list[ConfigResource]) -> None:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
                    for kind, name in items
                ],
                validate_only=validate_only,
            )
            answer = await self._ask.cluster.call(node_id, request, IncrementalAlterConfigsResponse)
            for result in answer.responses:
                resource = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                if sheet.accepts(resource, result.error_code, result.error_message):
                    sheet.done(resource, None)

        await self._ask.work_off(sheet, self._to_owners(sheet), ask)

    def _to_owners(self, sheet: Sheet[ConfigResource, V]) -> Route[ConfigResource]:
        async def route(items: list[ConfigResource]) -> dict[int, list[ConfigResource]]:
            nodes = self._ask.cluster.view.nodes
            routed: dict[int, list[ConfigResource]] = {}
            others = []
            for resource in items:
                if resource.node_id is None:
                    others.append(resource)
                elif resource.node_id in nodes:
                    routed.setdefault(resource.node_id, []).append(resource)
                else:
                    known = ", ".join(str(node_id) for node_id in sorted(nodes))
                    sheet.fail(resource, BadSetting(f"{sheet.doing(resource)}: the cluster's nodes are {known}"))
            if others:
                for node_id, rest in (await self._ask.to_controller(others)).items():
                    routed.setdefault(node_id, []).extend(rest)
            return routed

        return route


def config_text(value: object) -> str:
    """A setting's value as brokers read it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(config_text(part) for part in value)
    if isinstance(value, str | int | float):
        return str(value)
    raise BadSetting(f"a setting cannot have the value {value!r}: texts, numbers, booleans and lists of them can be")


def _resources(resources: ConfigResource | Iterable[ConfigResource]) -> list[ConfigResource]:
    many = [resources] if isinstance(resources, ConfigResource) else resources
    return [ConfigResource(ConfigResourceType(kind), name) for kind, name in many]


def _changes(operation: _Operation, values: Mapping[str, object] | None) -> list[ConfigAlteration]:
    return [
        ConfigAlteration(name=name, config_operation=operation, value=config_text(value))
        for name, value in (values or {}).items()
    ]


def _entry(config: DescribedConfig) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=ConfigSource(config.config_source),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        kind=ConfigType(config.config_type),
        synonyms=tuple(ConfigSynonym(one.name, one.value, ConfigSource(one.source)) for one in config.synonyms),
        documentation=config.documentation,
    )
