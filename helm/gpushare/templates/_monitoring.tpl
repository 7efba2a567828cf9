{{/* What monitors, rules and dashboards share. */}}

{{/* The same job name in every release and namespace, which rules and dashboards select. */}}
{{- define "gpushare.job" -}}
- targetLabel: job
  replacement: gpushare-{{ . }}
{{- end -}}

{{/* TLS of scrapes by pod address: the server name to verify. */}}
{{- define "gpushare.scrapeTls" -}}
scheme: https
tlsConfig:
  ca:
    secret: {name: {{ include "gpushare.metricsSecret" . | quote }}, key: ca.crt}
  serverName: {{ include "gpushare.metricsHost" . }}
{{- end -}}

{{/* The file of alert rules, with the URLs of runbooks and dashboard from the values. The rule that
fires where no webhook is scraped is left out where there is none. The part of a rule that fires
without a target is limited to this release: the targets of another one would silence it. */}}
{{- define "gpushare.alerts" -}}
{{- $file := .Files.Get "alerts/gpushare.yaml" -}}
{{- if not .Values.webhook.enabled -}}
{{- $file = regexReplaceAll " +- alert: GpushareWebhookDown\n( {8}.*\n)+" $file "" -}}
{{- end -}}
{{- $own := printf "namespace=%q" .Release.Namespace -}}
{{- $missing := printf "label_replace(vector(0), \"namespace\", %q, \"\", \"\") unless on ()" .Release.Namespace -}}
{{- $file = regexReplaceAll "vector\\(0\\) unless on \\(\\) up\\{([^}]*)\\}" $file (printf "%s up{${1},%s}" $missing $own) -}}
{{- $page := .Values.monitoring.alerts.runbookUrl | replace "$" "$$" | replace "{alert}" "${1}" -}}
{{- $text := regexReplaceAll "docs/runbooks/(\\w+)\\.md" $file $page -}}
{{- $url := .Values.monitoring.alerts.dashboardUrl | trimSuffix "/" | replace "$" "$$" -}}
{{- if $url -}}
{{- regexReplaceAll "dashboard_url: \"dashboard/" $text (printf "dashboard_url: \"%s/" $url) -}}
{{- else -}}
{{- regexReplaceAll "\n +dashboard_url: .*" $text "" -}}
{{- end -}}
{{- end -}}

{{/* The file of recording rules, of the release's own device plugins: what two releases both wrote
would be there twice. */}}
{{- define "gpushare.recordingRules" -}}
{{- $own := printf "namespace=%q" .Release.Namespace -}}
{{- $file := .Files.Get "rules/gpushare.yaml" -}}
{{- $file = $file | replace "job=\"gpushare-device-plugin\"" (printf "job=\"gpushare-device-plugin\", %s" $own) -}}
{{- $file | replace ":sum[" (printf ":sum{%s}[" $own) -}}
{{- end -}}

{{/* Permitted clients of the metrics ports: not tenants, who could hold all connections. */}}
{{- define "gpushare.metricsFrom" -}}
{{- $policy := .Values.networkPolicy -}}
{{- $peers := list (dict "podSelector" dict) -}}
{{- with $policy.monitoringNamespace -}}
{{- $labels := dict "kubernetes.io/metadata.name" . -}}
{{- $peers = append $peers (dict "namespaceSelector" (dict "matchLabels" $labels)) -}}
{{- end -}}
{{- toYaml (default $peers $policy.metricsFrom) -}}
{{- end -}}
