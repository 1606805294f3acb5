-- Small things that callers saved under a name: the default cluster of a chat workspace, a deployment.
-- The kind says which; the value is JSON, kept as given.
create table named_values (
    kind       text collate "C" not null,
    name       text collate "C" not null,
    value      text not null check (value::json is not null),
    updated_at timestamptz not null,
    primary key (kind, name)
);
