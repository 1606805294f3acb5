-- Small things that callers saved under a name: the default cluster of a chat workspace, a deployment.
-- The kind says which; the value is JSON, kept as given.
create table named_values (
    kind       text not null,
    name       text not null,
    value      text not null check (json_valid(value)),
    updated_at datetime not null,
    primary key (kind, name)
);
