-- Clusters by the name that callers gave them. The text is kept as given, as JSON.
create table clusters (
    name       text collate "C" primary key,
    cluster    text not null check (cluster::json is not null),
    hash       text not null,
    updated_at timestamptz not null
);
