{{/* How kube-scheduler calls the extender: the same beside it and for the cluster's own. */}}

{{/* (list root "http://127.0.0.1:39999") */}}
{{- define "gpushare.extenders" -}}
{{- $root := index . 0 -}}
- urlPrefix: {{ index . 1 }}/gpushare-scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  bindVerb: bind
  weight: {{ $root.Values.extender.weight }}
  {{- if include "gpushare.extenderTls" $root }}
  {{- $name := include "gpushare.name" (list $root "extender") }}
  enableHTTPS: true
  tlsConfig:
    serverName: {{ $name }}.{{ $root.Release.Namespace }}.svc
    # The three files of secret {{ default (printf "%s-client" $name) $root.Values.extender.tls.clientSecretName }}.
    caFile: /etc/kubernetes/gpushare/ca.crt
    certFile: /etc/kubernetes/gpushare/tls.crt
    keyFile: /etc/kubernetes/gpushare/tls.key
  {{- else }}
  enableHTTPS: false
  {{- end }}
  httpTimeout: {{ $root.Values.extender.httpTimeoutSeconds }}s
  # Names instead of whole nodes: the extender watches the nodes itself.
  nodeCacheCapable: true
  # A pod that requests a share must not be scheduled without the extender.
  ignorable: false
  managedResources:
    {{- range list "gpu-mem" "gpu-core.percentage" "gpu" }}
    - name: {{ $root.Values.resourceDomain }}/{{ . }}
      ignoredByScheduler: false
    {{- end }}
{{- end -}}

{{/*
The same as the policy that kube-scheduler reads with --policy-config-file before 1.23: a field is
spelled otherwise, and a duration is in nanoseconds. (list root "http://...")
*/}}
{{- define "gpushare.policy" -}}
{{- $extender := first (include "gpushare.extenders" . | fromYamlArray) -}}
{{- $nanoseconds := mul (index . 0).Values.extender.httpTimeoutSeconds 1000000000 -}}
{{- $spelled := dict "enableHttps" $extender.enableHTTPS "httpTimeout" $nanoseconds -}}
{{- $extender = merge $spelled (omit $extender "enableHTTPS" "httpTimeout") -}}
{{- dict "kind" "Policy" "apiVersion" "v1" "extenders" (list $extender) | toPrettyJson -}}
{{- end -}}
