"""The access control lists of an image, indexed by resource and principal.

Literal names and prefixes are in separate mappings, by type of resource. A look-up costs one access for the name, one
for `*`, and one for each length of prefixes. It does not visit every list.

Invariants: no binding has two ids; bindings of a pattern and principal are sorted, so that equal sets of bindings are
equal indexes in whatever order they came; no mapping is empty inside another one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klamm.acls import WILDCARD, AclBinding, PatternType, ResourceType

PatternAcls = Mapping[str, tuple[AclBinding, ...]]
"""The bindings of one pattern by principal."""
_Patterns = Mapping[str, PatternAcls]


class TypeAcls(NamedTuple):
    """The bindings of one type of resource, by the name of their pattern."""

    literals: _Patterns
    prefixes: _Patterns
    prefix_lengths: tuple[int, ...]
    """All lengths of prefixes, ascending."""

    def patterns(self) -> Iterator[PatternAcls]:
        """Yields the bindings of every pattern."""
        yield from self.literals.values()
        yield from self.prefixes.values()


_NONE: Final = TypeAcls({}, {}, ())


@dataclass(frozen=True, slots=True)
class AclIndex:
    """The access control entries of an image. `AclDraft` makes it; without arguments, it is empty. Its mappings never
    change."""

    by_id: Mapping[uuid.UUID, AclBinding] = field(default_factory=dict)
    _types: Mapping[ResourceType, TypeAcls] = field(default_factory=dict)

    def __contains__(self, binding: AclBinding) -> bool:
        """Returns whether the index has exactly this binding."""
        acls = self.of_type(binding.resource_type)
        patterns = acls.prefixes if binding.pattern_type is PatternType.PREFIXED else acls.literals
        return binding in patterns.get(binding.resource_name, {}).get(binding.principal, ())

    def of_type(self, resource_type: ResourceType) -> TypeAcls:
        """Returns all bindings of a type of resource."""
        return self._types.get(resource_type, _NONE)

    def of_resource(self, resource_type: ResourceType, name: str) -> list[PatternAcls]:
        """Returns the bindings of the patterns that match a resource: its name, `*`, and the prefixes of its name."""
        literals, prefixes, lengths = self.of_type(resource_type)
        found = [literals[name]] if name in literals else []
        if WILDCARD in literals and name != WILDCARD:
            found.append(literals[WILDCARD])
        size = len(name)
        for length in lengths:
            if length > size:
                break
            if (prefix := name[:length]) in prefixes:
                found.append(prefixes[prefix])
        return found


class AclDraft:
    """Builds the next version of an index. The old index does not change."""

    def __init__(self, base: AclIndex) -> None:
        self._base = base
        self._by_id: dict[uuid.UUID, AclBinding] | None = None
        self._types: dict[ResourceType, _TypeDraft] = {}

    def add(self, acl_id: uuid.UUID, binding: AclBinding) -> None:
        """Adds a binding. Raises AssertionError if the id or the binding exists already."""
        by_id = self._writable()
        assert acl_id not in by_id, f"ACL {acl_id} exists: {by_id[acl_id]}"
        by_id[acl_id] = binding
        self._type(binding.resource_type).add(binding)

    def remove(self, acl_id: uuid.UUID) -> None:
        """Removes a binding. Raises AssertionError if it does not exist."""
        binding = self._writable().pop(acl_id, None)
        assert binding is not None, f"no ACL has the id {acl_id}"
        self._type(binding.resource_type).remove(binding)

    def finish(self) -> AclIndex:
        """Returns the new index, or the old one if nothing was changed. The draft must not be used afterwards."""
        if self._by_id is None:
            return self._base
        finished = {resource_type: draft.finish() for resource_type, draft in self._types.items()}
        types = {**self._base._types, **finished}
        return AclIndex(self._by_id, {kind: acls for kind, acls in types.items() if acls != _NONE})

    def _writable(self) -> dict[uuid.UUID, AclBinding]:
        if self._by_id is None:
            self._by_id = dict(self._base.by_id)
        return self._by_id

    def _type(self, resource_type: ResourceType) -> _TypeDraft:
        if resource_type not in self._types:
            self._types[resource_type] = _TypeDraft(self._base.of_type(resource_type))
        return self._types[resource_type]


class _TypeDraft:
    """Builds the next version of the bindings of one type."""

    def __init__(self, base: TypeAcls) -> None:
        self._base = base
        self._literals = dict(base.literals)
        self._prefixes = dict(base.prefixes)

    def add(self, binding: AclBinding) -> None:
        patterns = self._patterns(binding)
        before = patterns.get(binding.resource_name, {})
        of_principal = before.get(binding.principal, ())
        assert binding not in of_principal, f"an ACL has another id already: {binding}"
        after = tuple(sorted((*of_principal, binding)))
        patterns[binding.resource_name] = {**before, binding.principal: after}

    def remove(self, binding: AclBinding) -> None:
        patterns = self._patterns(binding)
        acls = dict(patterns[binding.resource_name])
        left = tuple(other for other in acls.pop(binding.principal) if other != binding)
        if left:
            acls[binding.principal] = left
        if acls:
            patterns[binding.resource_name] = acls
        else:
            del patterns[binding.resource_name]

    def finish(self) -> TypeAcls:
        lengths = self._base.prefix_lengths
        if self._prefixes.keys() != self._base.prefixes.keys():
            lengths = tuple(sorted({len(prefix) for prefix in self._prefixes}))
        return TypeAcls(self._literals, self._prefixes, lengths)

    def _patterns(self, binding: AclBinding) -> dict[str, PatternAcls]:
        return self._prefixes if binding.pattern_type is PatternType.PREFIXED else self._literals
