{{/* What monitors, rules and dashboards share. */}}

{{/* A job of the same name in every release and namespace: rules and dashboards ask for it. */}}
{{- define "gpushare.job" -}}
- targetLabel: job
  replacement: gpushare-{{ . }}
{{- end -}}

{{/* How pods whose addresses nobody can certify are believed all the same. */}}
{{- define "gpushare.scrapeTls" -}}
scheme: https
tlsConfig:
  ca:
    secret: {name: {{ include "gpushare.metricsSecret" . }}, key: ca.crt}
  serverName: {{ include "gpushare.metricsHost" . }}
{{- end -}}

{{/* The file of alert rules, with the pages where the values say that they are. */}}
{{- define "gpushare.alerts" -}}
{{- $page := .Values.monitoring.alerts.runbookUrl | replace "$" "$$" | replace "{alert}" "${1}" -}}
{{- regexReplaceAll "docs/runbooks/(\\w+)\\.md" (.Files.Get "alerts/gpushare.yaml") $page -}}
{{- end -}}

{{/* Who may reach the ports with metrics: tenants may not, for they could hold their connections. */}}
{{- define "gpushare.metricsFrom" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $peers := list (dict "podSelector" dict) -}}
{{- with $policy.monitoringNamespace -}}
{{- $labels := dict "kubernetes.io/metadata.name" . -}}
{{- $peers = append $peers (dict "namespaceSelector" (dict "matchLabels" $labels)) -}}
{{- end -}}
{{- toYaml (default $peers $policy.metricsFrom) -}}
{{- end -}}
